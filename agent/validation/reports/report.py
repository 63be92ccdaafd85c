"""Makes a `TestRun` of what a sandboxed run left behind: report, JUnit file, exit code, output."""

from __future__ import annotations

from collections.abc import Iterable

from agent.types import Channels, Outcome, TestRun
from agent.validation.reports.channels import agreement
from agent.validation.reports.pytest_junit import JunitReport, read_junit
from agent.validation.reports.report_lines import Report, clean, read_report
from sandbox.types import Ended, RunResult

__all__ = ["COMMAND_ID", "INCOMPLETE", "INCONSISTENT", "clean", "counts", "make_run", "read_report"]

# Values of `TestRun.ended` beside those of `sandbox.types.Ended`.
INCOMPLETE = "incomplete"  # the process ended, but its tests had not
INCONSISTENT = "inconsistent"  # the accounts of the run contradict each other

# The one id of a command that reports no tests of its own.
COMMAND_ID = "command"

# Not executable, not found: what shells and env(1) exit with (POSIX, Shell 2.8.2).
_CANNOT_START = (126, 127)

# Kept of a run's output: enough to show why pytest itself refused to start.
OUTPUT_TAIL_CHARS = 6000

_IN_FLIGHT = "the run ended during this test"


def make_run(
    argv: tuple[str, ...], result: RunResult, *, own_runner: bool, opaque: bool = False
) -> TestRun:
    """Turn a finished run into a `TestRun`.

    `own_runner`: report, exit code and, where pytest was told to write it, the JUnit file must
    agree. `opaque`: a command that reported no session at all counts as one test, `COMMAND_ID`,
    that passes with exit code 0.
    """
    report = read_report(result.report)
    junit = read_junit(result.junit) if own_runner and report.junit else None
    channels = _channels(report, junit, result, own_runner=own_runner)
    ended = _ended(result, report, channels, own_runner=own_runner, opaque=opaque)
    outcomes, failures = dict(report.outcomes), dict(report.failures)
    if opaque and not report.begun:
        outcomes = _of_command(result)
    if ended != Ended.EXITED:
        for test in report.in_flight:
            failures.setdefault(test, _IN_FLIGHT)
            if _brought_down(ended, result):
                outcomes[test] = Outcome.ERROR
    return TestRun(
        command=argv,
        outcomes=outcomes,
        exit_code=result.exit_code,
        seconds=result.seconds,
        ended=ended,
        output_tail=_tail(result),
        failures=failures,
        channels=channels,
        expected_failures=tuple(sorted(report.expected)),
    )


def counts(run: TestRun) -> str:
    """`12 passed, 1 failed`, in a fixed order; `no outcomes` when there are none."""
    values = list(run.outcomes.values())
    parts = [f"{values.count(outcome)} {outcome.value}" for outcome in Outcome if outcome in values]
    return ", ".join(parts) or "no outcomes"


def _channels(
    report: Report, junit: JunitReport | None, result: RunResult, *, own_runner: bool
) -> Channels:
    read = ["report"] if report.begun else []
    if junit is not None and not junit.problem:
        read.append("junit")
    if result.exit_code is not None:
        read.append("exit code")
    ended = result.ended is Ended.EXITED and report.begun
    differ = agreement(report, junit, result.exit_code) if own_runner and ended else ()
    if result.report_dropped:
        differ = ("the report is longer than what is kept of one", *differ)
    return Channels(tuple(read), tuple(map(clean, differ)), tuple(map(clean, report.traces)))


def _ended(
    result: RunResult, report: Report, channels: Channels, *, own_runner: bool, opaque: bool
) -> str:
    if result.ended is not Ended.EXITED:
        return str(result.ended)
    if opaque and not report.begun:
        return str(Ended.EXITED)
    if own_runner and not report.begun:
        # pytest refused to start (its exit codes 1-4 say so); a clean exit would be a lie.
        return INCOMPLETE if result.exit_code == 0 or result.report else str(Ended.EXITED)
    if report.begun > len(report.statuses):
        return INCOMPLETE
    lies = channels.disagreements or not report.complete or _contradicts(report)
    return INCONSISTENT if lies else str(Ended.EXITED)


def _contradicts(report: Report) -> bool:
    """A session that says all is well (status 0) although a test of it failed."""
    failed = any(o in (Outcome.FAILED, Outcome.ERROR) for o in report.outcomes.values())
    return failed and not any(report.statuses)


def _brought_down(ended: str, result: RunResult) -> bool:
    """Whether the test that was running crashed. One that leaves with code 0 hides something."""
    return ended == Ended.SIGNALLED or (ended == INCOMPLETE and result.exit_code != 0)


def _of_command(result: RunResult) -> dict[str, Outcome]:
    """The one outcome of a command; none when it was cut short or could not be started."""
    if result.ended is not Ended.EXITED or result.exit_code in _CANNOT_START:
        return {}
    return {COMMAND_ID: Outcome.FAILED if result.exit_code else Outcome.PASSED}


def _tail(result: RunResult) -> str:
    streams: Iterable[bytes] = (result.stdout, result.stderr)
    text = "\n".join(clean(s.decode("utf-8", "replace")).strip() for s in streams).strip()
    return text[-OUTPUT_TAIL_CHARS:]
