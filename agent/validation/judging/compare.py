"""Compares two runs of the same tests, before and after a patch. Pure.

The rules (those of SWE-bench's FAIL_TO_PASS and PASS_TO_PASS, with absence counted):

    before          after                     counts as
    pass            pass                      still passing
    pass            fail, error, skip, absent newly failing
    fail, error     pass                      newly passing
    fail, error     fail, error, skip, absent nothing: red before
    skip            anything                  nothing: it said nothing before
    absent          fail, error               newly failing: new, and red
    absent          pass                      nothing: it was not seen to fail

A module that cannot be collected fails in the name of all its tests; a test in which the run was
killed fails too. Where both runs were cut short, absence says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.types import Outcome, TestRun
from sandbox.types import Ended

_BAD: Final = (Outcome.FAILED, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed, in order of the test ids. `executed`: the runs can be compared at all.

    They can when tests ran before and after, or when some that could not run before pass now.
    `still_red` failed before and fail after.
    """

    newly_failing: tuple[str, ...] = ()
    newly_passing: tuple[str, ...] = ()
    still_passing: int = 0
    still_red: int = 0
    executed: bool = False


def is_whole(run: TestRun) -> bool:
    """Whether the run came to its own end, so that a missing test is really absent."""
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
        still_red=sum(o in _BAD and failed(after, t) for t, o in before.outcomes.items()),
        executed=executed(after) and (executed(before) or bool(passing)),
    )


def passing_in_both(before: TestRun, after: TestRun) -> tuple[str, ...]:
    """The ids of the tests that pass before and after, in order."""
    return tuple(
        test
        for test, outcome in sorted(before.outcomes.items())
        if outcome is after.outcomes.get(test) is Outcome.PASSED
    )


def is_command(run: TestRun) -> bool:
    """Whether a command that reports no tests stands for them all."""
    return set(run.outcomes) == {"command"}


def failed(run: TestRun, test: str) -> bool:
    """Whether a test failed: itself, with the module it stands in, or with the run cut in it."""
    outcome = run.outcomes.get(test)
    if outcome is not None:
        return outcome in _BAD
    return test in run.failures or collection_error(run, test) is not None


def collection_error(run: TestRun, test: str) -> str | None:
    """The id of the failed collector (a module, a class) that would hold the test, if any."""
    collector = test
    while "::" in collector:
        collector = collector.rpartition("::")[0]
        if run.outcomes.get(collector) in _BAD:
            return collector
    return None


def executed(run: TestRun) -> bool:
    """Whether at least one test came as far as running: an error in set-up does not count."""
    return any(o in (Outcome.PASSED, Outcome.FAILED) for o in run.outcomes.values())


def _fails_newly(
    before: TestRun, was: Outcome | None, now: Outcome | None, test: str, *, absence_counts: bool
) -> bool:
    if was is Outcome.PASSED:
        return now is not None or absence_counts
    if was is None and now in _BAD:
        return not failed(before, test) and is_whole(before) and not _was_collector(before, test)
    return False


def _was_collector(run: TestRun, test: str) -> bool:
    """A collector that fails now: the tests that it held before stand for it, as absent."""
    return any(known.startswith(test + "::") for known in run.outcomes)
