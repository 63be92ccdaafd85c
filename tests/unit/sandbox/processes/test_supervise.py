from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.meters import Meters
from sandbox.supervise import (
    JUNIT_NAME,
    REPORT_NAME,
    Breach,
    Meter,
    ProcessOutcome,
    ReportChannels,
    explain_status,
    run_result,
    watch,
)
from sandbox.types import Ended, Limits, RunResult
from tests.support.watching import started

LIMITS = Limits(cpu_seconds=7, file_size=1000)
FULL = Breach(Ended.DISK_LIMIT, "full", decisive=False)
KILLED = Breach(Ended.MEMORY_LIMIT, "out of memory")


def outcome(cut: Breach | None = None, reached: Breach | None = None) -> ProcessOutcome:
    return ProcessOutcome(cut, 0, b"out", b"err", 1.5, reached)


def end(outcome: ProcessOutcome, status: int) -> tuple[Ended, int | None, str]:
    result = run_result(outcome, status, LIMITS, None)
    return result.ended, result.exit_code, result.detail


def test_a_plain_end_is_the_commands_own() -> None:
    expected = RunResult(Ended.EXITED, 3, b"out", b"err", 1.5)
    assert run_result(outcome(), 3, LIMITS, None) == expected


@pytest.mark.parametrize(
    ("reached", "status", "expected"),
    [
        (FULL, 0, (Ended.EXITED, 0, "full")),
        (FULL, 1, (Ended.DISK_LIMIT, None, "full")),
        (FULL, 137, (Ended.DISK_LIMIT, None, "full")),
        (KILLED, 0, (Ended.MEMORY_LIMIT, None, "out of memory")),
        (KILLED, 137, (Ended.MEMORY_LIMIT, None, "out of memory")),
        (FULL, 128 + 24, (Ended.CPU_LIMIT, None, "used 7 s of CPU time")),
        (None, 128 + 25, (Ended.DISK_LIMIT, None, "wrote a file of more than 1000 bytes")),
        (None, -25, (Ended.DISK_LIMIT, None, "wrote a file of more than 1000 bytes")),
        (None, 139, (Ended.SIGNALLED, None, "SIGSEGV")),
    ],
)
def test_what_was_reached_explains_a_failure(
    reached: Breach | None, status: int, expected: tuple[Ended, int | None, str]
) -> None:
    assert end(outcome(reached=reached), status) == expected


def test_a_cut_stays_what_it_is_and_says_what_else_was_reached() -> None:
    late = Breach(Ended.WALL_LIMIT, "too long")
    assert end(outcome(late, FULL), 137) == (Ended.WALL_LIMIT, None, "too long; full")
    assert end(outcome(KILLED, KILLED), 137) == (Ended.MEMORY_LIMIT, None, "out of memory")


def test_both_reports_are_in_the_result(tmp_path: Path) -> None:
    with ReportChannels(tmp_path, Limits(report=4), owner=None) as channels:
        (channels.junit_directory / JUNIT_NAME).write_bytes(b"junit")
        target = channels.report_directory / REPORT_NAME
        process = started("sh", "-c", 'printf report >"$1"', "sh", str(target))
        seen = watch(process, Limits(), None, process.kill, report=channels.pipe)
        result = run_result(seen, 0, LIMITS, channels)
    assert (result.report, result.report_dropped, result.junit) == (b"repo", 2, b"juni")


class Fixed(Meter):
    """A meter that always gives the same answer."""

    def __init__(self, now: Breach | None = None, after: Breach | None = None) -> None:
        self.now, self.then = now, after
        self.entered: list[int] = []
        self.closed = False

    def enter(self, pid: int) -> None:
        self.entered.append(pid)

    def close(self) -> None:
        self.closed = True

    def breach(self) -> Breach | None:
        return self.now

    def after(self) -> Breach | None:
        return self.then


def test_a_breach_ends_the_run() -> None:
    process = started("sleep", "60")
    seen = watch(process, Limits(), None, process.kill, meter=Meters([Fixed(), Fixed(KILLED)]))
    assert seen.cut == KILLED
    assert seen.seconds < 10


def test_the_end_is_not_delayed_by_meters() -> None:
    process = started("true")
    seen = watch(process, Limits(), None, process.kill, meter=Meters([Fixed(after=FULL)]))
    assert (seen.cut, seen.reached) == (None, FULL)


def test_of_several_meters_the_decisive_one_wins() -> None:
    meters = [Fixed(after=FULL), Fixed(after=KILLED), Fixed()]
    both = Meters(meters)
    assert both.after() == KILLED
    both.enter(5)
    both.close()
    assert [(one.entered, one.closed) for one in meters] == [([5], True)] * 3


@pytest.mark.parametrize(
    ("returncode", "seconds", "expected"),
    [
        (0, 1.0, (Ended.EXITED, 0, "")),
        (127, 1.0, (Ended.EXITED, 127, "")),
        (128, 1.0, (Ended.EXITED, 128, "")),
        (255, 1.0, (Ended.EXITED, 255, "")),
        (139, 1.0, (Ended.SIGNALLED, None, "SIGSEGV")),
        (-11, 1.0, (Ended.SIGNALLED, None, "SIGSEGV")),
        (-9, 1.0, (Ended.SIGNALLED, None, "SIGKILL")),
        (-40, 1.0, (Ended.SIGNALLED, None, "signal 40")),
        (152, 1.0, (Ended.CPU_LIMIT, None, "used 10 s of CPU time")),
        (137, 11.0, (Ended.CPU_LIMIT, None, "used 10 s of CPU time")),
    ],
)
def test_a_status_is_explained(
    returncode: int, seconds: float, expected: tuple[Ended, int | None, str]
) -> None:
    assert explain_status(returncode, seconds, Limits(cpu_seconds=10)) == expected
