"""From what was seen of a run to its result: which limit ended it, if one did."""

from __future__ import annotations

from sandbox.channels import Channels
from sandbox.rlimits import explain
from sandbox.supervise import Breach, Outcome
from sandbox.types import Ended, Limits, RunResult


def run_result(
    outcome: Outcome, status: int, limits: Limits, channels: Channels | None
) -> RunResult:
    """The result of a run that has ended, with what came through its `channels`.

    `status` is the command's: 0..255 (128 + N for signal N) or -N. A limit that was reached is
    named when the command failed or was killed, and only mentioned when it succeeded all the same.
    """
    ended, code, detail = _end(outcome, status, limits)
    return RunResult(
        ended=ended,
        exit_code=code,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        seconds=outcome.seconds,
        report=b"" if channels is None else channels.pipe.capture.value(),
        detail=detail,
        junit=b"" if channels is None else channels.junit(),
        report_dropped=0 if channels is None else channels.pipe.capture.dropped,
    )


def _end(outcome: Outcome, status: int, limits: Limits) -> tuple[Ended, int | None, str]:
    reached = outcome.reached
    if outcome.cut is not None:
        return outcome.cut, None, _joined(outcome.detail, reached)
    ended, code, detail = explain(status, outcome.seconds, limits)
    if reached is None or ended in (Ended.CPU_LIMIT, Ended.DISK_LIMIT):
        return ended, code, detail
    if reached.decisive or (ended, code) != (Ended.EXITED, 0):
        return reached.ended, None, reached.detail
    return ended, code, reached.detail


def _joined(detail: str, reached: Breach | None) -> str:
    if reached is None or reached.detail == detail:
        return detail
    return f"{detail}; {reached.detail}"
