"""Read the report of `agent eval patches` or of the SWE-bench harness, in each of its formats.

A report has either entries by instance, at the top level or below `instances`, such as `{"ID":
{"resolved": true, "tests_status": {"FAIL_TO_PASS": {"success": [], ...}}}}`, or lists of ids, such
as `{"resolved_ids": [], "unresolved_ids": [], ...}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.errors import ConfigurationError
from agent.report.run_files import LARGEST_DOCUMENT


def _a_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else ()


def _an_object(value: Any) -> Any:
    return value if isinstance(value, Mapping) else {}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


_Names = Annotated[tuple[str, ...], BeforeValidator(_a_list)]


class TestLists(_Part):
    """The deciding tests of one kind that met the expectation, and those that did not."""

    __test__ = False

    success: _Names = ()
    failure: _Names = ()


_Lists = Annotated[TestLists, BeforeValidator(_an_object)]


class TestsStatus(_Part):
    """The deciding tests of an instance."""

    __test__ = False

    fail_to_pass: _Lists = Field(default=TestLists(), validation_alias="FAIL_TO_PASS")
    pass_to_pass: _Lists = Field(default=TestLists(), validation_alias="PASS_TO_PASS")


class _Check(_Part):
    problems: _Names = ()


class _Own(_Part):
    same_patch: bool = True


class Evaluated(_Part):
    """The evaluation of one instance. `resolved` is None if the patch was not judged."""

    resolved: bool | None = None
    patch_successfully_applied: bool | None = None
    outcome: str = ""
    tests_status: Annotated[TestsStatus, BeforeValidator(_an_object)] = TestsStatus()
    reason: str = ""
    suspicion: str = ""
    absent: _Names = ()
    notes: _Names = ()
    check: Annotated[_Check, BeforeValidator(_an_object)] = _Check()
    own: Annotated[_Own, BeforeValidator(_an_object)] = _Own()

    @property
    def remarks(self) -> tuple[str, ...]:
        """Further remarks, one clause each."""
        found = [self.reason, self.suspicion, *self.check.problems, *self.notes]
        if not self.own.same_patch:
            found.append("the evaluated patch is another one than that of this run")
        if self.absent:
            found.append(f"{len(self.absent)} given tests were not known to the run")
        return tuple(dict.fromkeys(remark for remark in found if remark))


_RESOLVED = ("resolved_ids", "resolved")
# The harness counts patches that it could not apply as errors.
_UNRESOLVED = ("unresolved_ids", "empty_patch_ids", "error_ids", "unresolved")


def load_evaluation(path: Path) -> Mapping[str, Evaluated]:
    """Return the evaluation of each instance. Raises ConfigurationError if there is none."""
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(LARGEST_DOCUMENT))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(
            f"--evaluation {path}: {reason}; give the report of `agent eval patches`"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"--evaluation {path}: not one JSON object ({error}); give the evaluation.json that "
            "`agent eval patches --output` wrote"
        ) from None
    found = _by_id(value) | _from_lists(value)
    if not found:
        raise ConfigurationError(
            f"--evaluation {path}: does not say of any instance whether it is resolved; give the "
            "report of `agent eval patches`"
        )
    return found


def _by_id(value: Any) -> dict[str, Evaluated]:
    if not isinstance(value, Mapping):
        return {}
    inner = value.get("instances")
    entries = inner if isinstance(inner, Mapping) else value
    found = {name: _entry(entry) for name, entry in entries.items()}
    return {name: entry for name, entry in found.items() if entry is not None}


def _entry(value: Any) -> Evaluated | None:
    if not isinstance(value, Mapping) or "resolved" not in value:
        return None
    try:
        found = Evaluated.model_validate(value)
    except ValidationError:
        return None
    return found.model_copy(update={"resolved": None}) if found.outcome == "error" else found


def _from_lists(value: Any) -> dict[str, Evaluated]:
    """Read lists of ids, unless the report has entries by id, which are more detailed."""
    if not isinstance(value, Mapping) or isinstance(value.get("instances"), Mapping):
        return {}
    found: dict[str, Evaluated] = {}
    for names, resolved in ((_UNRESOLVED, False), (_RESOLVED, True)):
        for name in names:
            ids = value.get(name)
            for one in ids if isinstance(ids, list) else ():
                if isinstance(one, str):
                    found[one] = Evaluated(resolved=resolved, reason=_why(name))
    return found


def _why(name: str) -> str:
    return {"empty_patch_ids": "no patch", "error_ids": "it could not be evaluated"}.get(name, "")
