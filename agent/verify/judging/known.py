"""Judges a patch by given tests (`FAIL_TO_PASS` and `PASS_TO_PASS` of SWE-bench).

Exactly these ids decide, by SWE-bench's rules: an absent or skipped test has not passed. Their
names and their output stay out of every prompt, so the reasons made here contain only counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.errors import ConfigurationError
from agent.shared.files import LONGEST_ROW
from agent.types import KnownTests, Outcome, TestRun, Verdict
from agent.verify.judging.compare import executed, failed, is_whole
from agent.verify.judging.wording import number


@dataclass(frozen=True, slots=True)
class KnownJudgement:
    """`missed` are the given ids without the expected result; `absent` ids are in no run.

    `reason` may be part of a prompt and names no test.
    """

    verdict: Verdict
    reason: str
    missed: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def judge_known(
    known: KnownTests, before: TestRun | None, after: TestRun | None, lost: Sequence[str]
) -> KnownJudgement:
    """Judge the runs before and after the patch; `lost` are ids that fail newly."""
    if before is None or after is None or not (executed(before) or executed(after)):
        return KnownJudgement(Verdict.UNVERIFIED, f"No test could be run: {_GIVEN} did not run.")
    gone = tuple(test for test in known.pass_to_pass if test in set(lost))
    unfixed = tuple(test for test in known.fail_to_pass if not _passes(after, test))
    fixed = tuple(t for t in known.fail_to_pass if _passes(after, t) and not _passes(before, t))
    kept = tuple(test for test in known.pass_to_pass if _passes(after, test))
    never = tuple(t for t in known.pass_to_pass if t not in gone and not _passes(after, t))
    missed = tuple(sorted({*gone, *unfixed, *never}))
    absent = tuple(test for test in missed if not (_seen(before, test) or _seen(after, test)))
    red = sum(not _passes(before, test) for test in kept)
    verdict, words = _decide(known, fixed, _Missed(len(unfixed), len(gone), len(never), red))
    parts = (_not_found(len(absent)), words, _cut(before, after))
    return KnownJudgement(verdict, " ".join(filter(None, parts)), missed, fixed, kept, absent)


def known_paths(known: KnownTests, exists: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the sorted paths of the existing test files that hold the given tests."""
    ids = (*known.fail_to_pass, *known.pass_to_pass)
    paths = {path for path, separator, _ in (i.partition("::") for i in ids) if separator}
    return tuple(sorted(filter(exists, paths)))


def by_id(known: KnownTests, test_id: Callable[[str], str]) -> KnownTests:
    """Convert the given names to the ids that runs report."""
    return KnownTests(
        tuple(dict.fromkeys(map(test_id, known.fail_to_pass))),
        tuple(dict.fromkeys(map(test_id, known.pass_to_pass))),
    )


def read_known(path: Path) -> KnownTests:
    """Read the ids from a row of SWE-bench: one JSON object, or JSON lines with one row.

    Raises ConfigurationError.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_ROW + 1)
        row = _Row.model_validate_json(data) if len(data) <= LONGEST_ROW else None
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
    """Accept a list, or a string that holds one as JSON, as data sets have it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


IdList = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""The ids of tests in a field of a row."""


class _Row(BaseModel):
    """The fields of a row that are needed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    fail_to_pass: IdList = Field((), alias="FAIL_TO_PASS")
    pass_to_pass: IdList = Field((), alias="PASS_TO_PASS")


_GIVEN = "the tests that were given to decide"
_NONE_TO_FIX = "none was given that should be fixed"


def _passes(run: TestRun, test: str) -> bool:
    return run.outcomes.get(test) is Outcome.PASSED


def _seen(run: TestRun, test: str) -> bool:
    return test in run.outcomes or failed(run, test)


def _not_found(absent: int) -> str:
    if not absent:
        return ""
    given = "given id was" if absent == 1 else "given ids were"
    them = "it" if absent == 1 else "them"
    return f"{absent} {given} not found on the base or with the patch (the notes name {them})."


def _cut(before: TestRun, after: TestRun) -> str:
    """Return which runs were cut off and how, but not in which test."""
    runs = (("on the base", before), ("with the patch", after))
    ended = [f"{where}: {run.ended}" for where, run in runs if not is_whole(run)]
    return f"Cut off, only what came before is known ({', '.join(ended)})." if ended else ""


@dataclass(frozen=True, slots=True)
class _Missed:
    """Counts of given tests; `red` ones should stay green and pass, but did not pass before."""

    unfixed: int
    gone: int
    never: int
    red: int


def _decide(known: KnownTests, fixed: tuple[str, ...], missed: _Missed) -> tuple[Verdict, str]:
    should, stay = len(known.fail_to_pass), len(known.pass_to_pass)
    passing = (
        (should - missed.unfixed, should, "should be fixed"),
        (stay - missed.gone - missed.never, stay, "should stay so"),
    )
    parts = [f"{count} of {of} that {what} pass" for count, of, what in passing if of]
    counted = f"Of {_GIVEN} {', '.join(parts)}"
    if missed.gone or missed.unfixed:
        return Verdict.REGRESSED, f"{counted} with the patch; {missed.gone} fail newly."
    if missed.never:
        does = "does" if missed.never == 1 else "do"
        words = f"{number(missed.never, 'test')} of them {does} not pass on the base either"
        return Verdict.NOT_REGRESSED, f"{counted}; {words}."
    if missed.red:
        counted += f", {missed.red} of which did not pass on the base"
    if fixed:
        return Verdict.VERIFIED, f"{counted}."
    lack = "none that should be fixed failed on the base"
    return Verdict.NOT_REGRESSED, f"{counted}; {lack if should else _NONE_TO_FIX}."
