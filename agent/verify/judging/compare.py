"""Compares two runs of the same tests, before and after a patch, and says if they are credible.

Pure. The rules are those of SWE-bench's FAIL_TO_PASS and PASS_TO_PASS; a test that passed and is
absent fails too. The names and output of given tests stay out of every prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from agent.errors import ConfigurationError
from agent.shared.files import LONGEST_ROW
from agent.types import BAD_OUTCOMES, KnownTests, Outcome, TestRun, Verdict
from agent.verify.judging.wording import how_it_ended, listed
from agent.verify.reports import INCOMPLETE, INCONSISTENT
from sandbox import Ended

# The number of changes to the test runner that a message names.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes between two runs, sorted by test id. `executed`: the runs can be compared.

    They can if tests ran before and after, or if tests that could not run before pass now.
    `still_red` tests failed before and fail after.
    """

    newly_failing: tuple[str, ...] = ()
    newly_passing: tuple[str, ...] = ()
    still_passing: int = 0
    still_red: int = 0
    executed: bool = False


def is_whole(run: TestRun) -> bool:
    """Whether the run ended by itself, so that a missing test is really absent."""
    return run.ended == Ended.EXITED


def hit_a_limit(run: TestRun) -> bool:
    """Whether the run took too long."""
    return run.ended in (Ended.WALL_LIMIT, Ended.CPU_LIMIT)


def compare(before: TestRun, after: TestRun) -> Comparison:
    """Compare outcomes by test id."""
    absence_counts = is_whole(before) or is_whole(after)
    failing, passing = [], []
    for test in sorted({*before.outcomes, *after.outcomes}):
        was, now = before.outcomes.get(test), after.outcomes.get(test)
        if now is Outcome.PASSED:
            passing += [test] if failed(before, test) else []
        elif was is Outcome.PASSED:
            failing += [test] if now is not None or absence_counts else []
        elif was is None and now in BAD_OUTCOMES and is_whole(before):
            is_new = not failed(before, test) and not was_collector(before, test)
            failing += [test] if is_new else []
    red = sum(o in BAD_OUTCOMES and failed(after, t) for t, o in before.outcomes.items())
    shown = executed(after) and (executed(before) or bool(passing))
    return Comparison(
        newly_failing=tuple(failing),
        newly_passing=tuple(passing),
        still_passing=len(passing_in_both(before, after)),
        still_red=red,
        executed=shown and not (red and is_command(before)),  # its exit code shows nothing
    )


def passing_in_both(before: TestRun, after: TestRun) -> tuple[str, ...]:
    """Return the sorted ids of the tests that pass before and after."""
    return tuple(t for t in sorted(before.outcomes) if passes(before, t) and passes(after, t))


def is_command(run: TestRun) -> bool:
    """Whether the run is one of a command that reports no tests of its own."""
    return set(run.outcomes) == {"command"}


def failed(run: TestRun, test: str) -> bool:
    """Whether a test failed: by itself, with its module, or because the run was cut off in it."""
    outcome = run.outcomes.get(test)
    if outcome is not None:
        return outcome in BAD_OUTCOMES
    return test in run.failures or collection_error(run, test) is not None


def collection_error(run: TestRun, test: str) -> str | None:
    """Return the id of the failed collector (a module or class) of the test, if any."""
    collector = test
    while "::" in collector:
        collector = collector.rpartition("::")[0]
        if run.outcomes.get(collector) in BAD_OUTCOMES:
            return collector
    return None


def executed(run: TestRun) -> bool:
    """Whether at least one test ran; an error in its set-up does not count as running."""
    return any(o in (Outcome.PASSED, Outcome.FAILED) for o in run.outcomes.values())


def was_collector(run: TestRun, test: str) -> bool:
    """Whether the id is a collector, such as a module, whose tests are in the run."""
    return any(known.startswith(test + "::") for known in run.outcomes)


def to_blame(run: TestRun, tests: Iterable[str]) -> tuple[str, ...]:
    """Return the tests; a module that could not be collected replaces all of its tests."""
    return tuple(dict.fromkeys(collection_error(run, test) or test for test in tests))


def doubtful(run: TestRun) -> bool:
    """Whether the run is not credible: its accounts contradict each other, or it exited cleanly
    before its tests had ended. A crash is credible, because its exit code shows it.
    """
    return run.ended == INCONSISTENT or (run.ended == INCOMPLETE and not run.exit_code)


def suspicion(before: TestRun | None, after: TestRun | None) -> str:
    """Return why the run with the patch is not credible although that on the base is, or ""."""
    if after is None:
        return ""
    readable = before is None or (
        bool(before.outcomes)
        and not doubtful(before)
        and not (is_command(before) and Outcome.PASSED not in before.outcomes.values())
    )
    if doubtful(after) and readable:
        what = "; ".join(after.channels.disagreements) or how_it_ended(after)
        return f"the accounts of the run with the patch do not agree: {what}"
    if before is None or before.ended != Ended.EXITED:
        return ""
    new = tuple(trace for trace in after.channels.traces if trace not in before.channels.traces)
    return f"with the patch the test runner itself is changed: {listed(new, _SHOWN)}" if new else ""


# ---------------------------------------------------------------------------------- given tests


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
        return KnownJudgement(Verdict.UNVERIFIED, "No test could be run: the given ones did not.")
    should, stay = known.fail_to_pass, known.pass_to_pass
    gone = [test for test in stay if test in lost]
    unfixed = [test for test in should if not passes(after, test)]
    fixed = tuple(t for t in should if passes(after, t) and not passes(before, t))
    kept = tuple(test for test in stay if passes(after, test))
    missed = tuple(sorted({*unfixed, *gone, *set(stay).difference(kept)}))
    runs = (before, after)
    absent = tuple(t for t in missed if not any(t in r.outcomes or failed(r, t) for r in runs))
    verdict = Verdict.VERIFIED if fixed and not missed else Verdict.NOT_REGRESSED
    if gone or unfixed:
        verdict = Verdict.REGRESSED
    unknown = f", {len(absent)} in no run (the notes name them)" if absent else ""
    reason = (
        f"Of the given tests, {len(should) - len(unfixed)} of {len(should)} that should be fixed "
        f"pass, and {len(kept)} of {len(stay)} that should stay so ({len(gone)} newly failing)"
        f"{unknown}."
    )
    if not (fixed or unfixed):
        reason += " None that should be fixed failed on the base."
    return KnownJudgement(verdict, reason, missed, fixed, kept, absent)


def known_paths(known: KnownTests, exists: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the sorted paths of the existing test files that hold the given tests."""
    ids = (*known.fail_to_pass, *known.pass_to_pass)
    paths = {path for path, separator, _ in (i.partition("::") for i in ids) if separator}
    return tuple(sorted(filter(exists, paths)))


def by_id(known: KnownTests, test_id: Callable[[str], str]) -> KnownTests:
    """Convert the given names to the ids that runs report."""
    both = (known.fail_to_pass, known.pass_to_pass)
    return KnownTests(*(tuple(dict.fromkeys(map(test_id, names))) for names in both))


def read_known(path: Path) -> KnownTests:
    """Read the ids from a row of SWE-bench as JSON. Raises ConfigurationError."""
    problem = "no test ids"
    try:
        with path.open("rb") as file:
            row = _Row.model_validate_json(file.read(LONGEST_ROW))
        if any(ids := (row.fail_to_pass, row.pass_to_pass)):
            return KnownTests(*ids)
    except OSError as error:
        raise ConfigurationError(f"--tests-from {path}: {error.strerror or error}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
    raise ConfigurationError(
        f"--tests-from {path}: {problem}; give one row with FAIL_TO_PASS and PASS_TO_PASS"
    )


def _listed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


IdList = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""The ids of tests in a field of a row."""


class _Row(BaseModel, frozen=True):
    """The fields of a row that are needed."""

    fail_to_pass: IdList = Field((), alias="FAIL_TO_PASS")
    pass_to_pass: IdList = Field((), alias="PASS_TO_PASS")


def passes(run: TestRun, test: str) -> bool:
    """Whether a test passed."""
    return run.outcomes.get(test) is Outcome.PASSED
