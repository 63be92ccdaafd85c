"""Tests that are known to decide (`FAIL_TO_PASS`, `PASS_TO_PASS` of SWE-bench), and what they say.

Exactly these ids decide, by SWE-bench's rules: absent or skipped is not passed. They and what they
print are kept from every prompt: the reasons made here hold counts, and nothing else of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.errors import ConfigurationError
from agent.types import KnownTests, Outcome, TestRun, Verdict
from agent.validation.judging.compare import executed, is_whole
from agent.validation.judging.wording import number

# Rows of SWE-bench hold a few thousand ids at most, and two patches.
_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class KnownJudgement:
    """`missed` are the given ids that do not do what they should; `reason` names none of them."""

    verdict: Verdict
    reason: str
    missed: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def judge_known(
    known: KnownTests, before: TestRun | None, after: TestRun | None, lost: Sequence[str]
) -> KnownJudgement:
    """The verdict of the given tests, by the runs A and C; `lost` are ids that fail newly."""
    if before is None or after is None or not (executed(before) or executed(after)):
        return KnownJudgement(Verdict.UNVERIFIED, f"No test could be run: {_GIVEN} did not run.")
    gone = tuple(test for test in known.pass_to_pass if test in set(lost))
    unfixed = tuple(test for test in known.fail_to_pass if not _passes(after, test))
    fixed = tuple(t for t in known.fail_to_pass if _passes(after, t) and not _passes(before, t))
    kept = tuple(test for test in known.pass_to_pass if _passes(after, test))
    never = tuple(t for t in known.pass_to_pass if t not in gone and not _passes(after, t))
    missed = tuple(sorted({*gone, *unfixed, *never}))
    verdict, words = _decide(known, fixed, len(unfixed), len(gone), len(never))
    cut = "" if is_whole(after) else f" The run with the patch did not end well ({after.ended})."
    return KnownJudgement(verdict, words + cut, missed, fixed, kept)


def known_paths(known: KnownTests, exists: Callable[[str], bool]) -> tuple[str, ...]:
    """The test files that hold the given tests, in order; those that are not there are left out."""
    ids = (*known.fail_to_pass, *known.pass_to_pass)
    paths = {path for path, separator, _ in (i.partition("::") for i in ids) if separator}
    return tuple(sorted(filter(exists, paths)))


def by_id(known: KnownTests, test_id: Callable[[str], str]) -> KnownTests:
    """The given names as the ids that runs report."""
    return KnownTests(
        tuple(dict.fromkeys(map(test_id, known.fail_to_pass))),
        tuple(dict.fromkeys(map(test_id, known.pass_to_pass))),
    )


def read_known(path: Path) -> KnownTests:
    """The ids of a row of SWE-bench: one JSON object, or JSON lines with one row.

    Raises ConfigurationError.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        row = _Row.model_validate_json(data) if len(data) <= _MOST_BYTES else None
    except OSError as error:
        raise ConfigurationError(f"--tests-from {path}: {error.strerror or error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "it is not one row of JSON"
        raise ConfigurationError(
            f"--tests-from {path}: {where}: {first['msg']}; give one row with FAIL_TO_PASS and "
            "PASS_TO_PASS"
        ) from None
    if row is None or not (row.fail_to_pass or row.pass_to_pass):
        raise ConfigurationError(
            f"--tests-from {path}: no test ids; give one row with FAIL_TO_PASS and PASS_TO_PASS"
        )
    return KnownTests(row.fail_to_pass, row.pass_to_pass)


def _listed(value: object) -> object:
    """A list, or a string that holds one as JSON, as data sets have it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


_Ids = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class _Row(BaseModel):
    """Of a row only what is needed: patches and issue text are not even kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    fail_to_pass: _Ids = Field((), alias="FAIL_TO_PASS")
    pass_to_pass: _Ids = Field((), alias="PASS_TO_PASS")


_GIVEN = "the tests that were given to decide"


def _passes(run: TestRun, test: str) -> bool:
    return run.outcomes.get(test) is Outcome.PASSED


def _decide(
    known: KnownTests, fixed: tuple[str, ...], unfixed: int, gone: int, never: int
) -> tuple[Verdict, str]:
    should, stay = len(known.fail_to_pass), len(known.pass_to_pass)
    counted = f"{should - unfixed} of {should} that should be fixed pass, "
    counted += f"{stay - gone - never} of {stay} that should stay so pass"
    if gone or unfixed:
        return Verdict.REGRESSED, f"Of {_GIVEN} with the patch {counted}; {gone} fail newly."
    if never:
        words = f"{number(never, 'test')} of them {'does' if never == 1 else 'do'} not pass on the"
        return Verdict.NOT_REGRESSED, f"Of {_GIVEN} {counted}; {words} base either."
    if fixed:
        return Verdict.VERIFIED, f"Of {_GIVEN} {counted}."
    return Verdict.NOT_REGRESSED, f"Of {_GIVEN} {counted}, and none of them failed on the base."
