"""Whether a run can be believed, in comparison with the same run on the base. Pure."""

from __future__ import annotations

from agent.types import TestRun
from agent.validation.judging.wording import how_it_ended, listed
from agent.validation.reports.report import INCOMPLETE, INCONSISTENT
from sandbox.types import Ended

_SHOWN = 3


def lies(run: TestRun) -> bool:
    """Whether the accounts of the run contradict each other, or it left with a clean exit code
    before its tests had ended. A crash does neither: its exit code says so.
    """
    return run.ended == INCONSISTENT or (run.ended == INCOMPLETE and not run.exit_code)


def suspicion(before: TestRun | None, after: TestRun | None) -> str:
    """Why the run with the patch cannot be believed although that on the base can; or ""."""
    if after is None:
        return ""
    if lies(after) and not (before is not None and lies(before)):
        what = "; ".join(after.channels.disagreements) or how_it_ended(after)
        return f"the accounts of the run with the patch do not agree: {what}"
    new = new_traces(before, after)
    if new:
        return f"with the patch the test runner itself is changed: {listed(new, _SHOWN)}"
    return ""


def new_traces(before: TestRun | None, after: TestRun) -> tuple[str, ...]:
    """What was done to the test runner with the patch only; a run cut short tells nothing of it."""
    if before is None or before.ended != Ended.EXITED:
        return ()
    known = set(before.channels.traces)
    return tuple(trace for trace in after.channels.traces if trace not in known)


def lies_on_both(before: TestRun | None, after: TestRun | None) -> bool:
    """Whether the project's tests cannot be believed, patch or not."""
    return before is not None and after is not None and lies(before) and lies(after)
