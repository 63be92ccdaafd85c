"""Compares two runs of the same tests, before and after a patch, and says if they are credible.

Pure. The rules are those of SWE-bench's FAIL_TO_PASS and PASS_TO_PASS, and absence counts too:

    before          after                     counts as
    pass            pass                      still passing
    pass            fail, error, skip, absent newly failing
    fail, error     pass                      newly passing
    fail, error     fail, error, skip, absent nothing: it was red before
    skip            anything                  nothing: it showed nothing before
    absent          fail, error               newly failing: new, and red
    absent          pass                      nothing: it was not seen to fail

If a module cannot be collected, all of its tests fail. A test during which the run was killed fails
too. Where both runs were cut short, absence shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.types import BAD_OUTCOMES, Outcome, TestRun
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


def compare(before: TestRun, after: TestRun) -> Comparison:
    """Compare outcomes by test id."""
    absence_counts = is_whole(before) or is_whole(after)
    failing, passing, still = [], [], 0
    for test in sorted({*before.outcomes, *after.outcomes}):
        was, now = before.outcomes.get(test), after.outcomes.get(test)
        if was is Outcome.PASSED and now is Outcome.PASSED:
            still += 1
        elif now is Outcome.PASSED:
            if failed(before, test):
                passing.append(test)
        elif _fails_newly(before, was, now, test, absence_counts=absence_counts):
            failing.append(test)
    return Comparison(
        newly_failing=tuple(failing),
        newly_passing=tuple(passing),
        still_passing=still,
        still_red=sum(o in BAD_OUTCOMES and failed(after, t) for t, o in before.outcomes.items()),
        executed=executed(after) and (executed(before) or bool(passing)),
    )


def passing_in_both(before: TestRun, after: TestRun) -> tuple[str, ...]:
    """Return the sorted ids of the tests that pass before and after."""
    return tuple(
        test
        for test, outcome in sorted(before.outcomes.items())
        if outcome is after.outcomes.get(test) is Outcome.PASSED
    )


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


def _fails_newly(
    before: TestRun, was: Outcome | None, now: Outcome | None, test: str, *, absence_counts: bool
) -> bool:
    if was is Outcome.PASSED:
        return now is not None or absence_counts
    if was is None and now in BAD_OUTCOMES:
        return not failed(before, test) and is_whole(before) and not _was_collector(before, test)
    return False


def _was_collector(run: TestRun, test: str) -> bool:
    """Whether the id is a collector whose tests ran before. They count as absent instead."""
    return any(known.startswith(test + "::") for known in run.outcomes)


def to_blame(run: TestRun, tests: Iterable[str]) -> tuple[str, ...]:
    """Return the tests; a module that could not be collected replaces all of its tests."""
    return tuple(dict.fromkeys(collection_error(run, test) or test for test in tests))


def doubtful(run: TestRun) -> bool:
    """Whether the run is not credible: its accounts contradict each other, or it exited cleanly
    before its tests had ended. A crash is credible, because its exit code shows it.
    """
    return run.ended == INCONSISTENT or (run.ended == INCOMPLETE and not run.exit_code)


def is_unreadable(run: TestRun) -> bool:
    """Whether a run of the base shows nothing of its tests: the runner's fault, or our reader's.

    That a command without outcomes of its own fails says as little.
    """
    red_command = is_command(run) and Outcome.PASSED not in run.outcomes.values()
    return not run.outcomes or doubtful(run) or red_command


def suspicion(before: TestRun | None, after: TestRun | None) -> str:
    """Return why the run with the patch is not credible although that on the base is, or ""."""
    if after is None:
        return ""
    if doubtful(after) and not (before is not None and is_unreadable(before)):
        what = "; ".join(after.channels.disagreements) or how_it_ended(after)
        return f"the accounts of the run with the patch do not agree: {what}"
    new = new_traces(before, after)
    if new:
        return f"with the patch the test runner itself is changed: {listed(new, _SHOWN)}"
    return ""


def new_traces(before: TestRun | None, after: TestRun) -> tuple[str, ...]:
    """Return the changes to the test runner that only the patch makes.

    None where the run on the base was cut short, because its own changes are unknown then.
    """
    if before is None or before.ended != Ended.EXITED:
        return ()
    known = set(before.channels.traces)
    return tuple(trace for trace in after.channels.traces if trace not in known)


def doubtful_on_both(before: TestRun | None, after: TestRun | None) -> bool:
    """Whether the project's tests are not credible with or without the patch."""
    return before is not None and after is not None and doubtful(before) and doubtful(after)
