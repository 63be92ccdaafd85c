from __future__ import annotations

import pytest

from sandbox.supervise import Breach, ProcessOutcome, explain_end
from sandbox.types import Ended, Limits

LIMITS = Limits(cpu_seconds=7, file_size=1000)
FULL = Breach(Ended.DISK_LIMIT, "full", decisive=False)
KILLED = Breach(Ended.MEMORY_LIMIT, "out of memory")
LATE = Breach(Ended.WALL_LIMIT, "too long")


@pytest.mark.parametrize(
    ("cut", "reached", "status", "expected"),
    [
        (None, None, 3, (Ended.EXITED, 3, "")),
        (None, None, 128, (Ended.EXITED, 128, "")),
        (None, None, 255, (Ended.EXITED, 255, "")),
        (None, None, 139, (Ended.SIGNALLED, None, "SIGSEGV")),
        (None, None, -9, (Ended.SIGNALLED, None, "SIGKILL")),
        (None, None, -40, (Ended.SIGNALLED, None, "signal 40")),
        (None, None, -25, (Ended.DISK_LIMIT, None, "wrote a file of more than 1000 bytes")),
        (None, FULL, 0, (Ended.EXITED, 0, "full")),
        (None, FULL, 1, (Ended.DISK_LIMIT, None, "full")),
        (None, FULL, 137, (Ended.DISK_LIMIT, None, "full")),
        (None, KILLED, 0, (Ended.MEMORY_LIMIT, None, "out of memory")),
        (None, KILLED, 137, (Ended.MEMORY_LIMIT, None, "out of memory")),
        (None, FULL, 128 + 24, (Ended.CPU_LIMIT, None, "used 7 s of CPU time")),
        (None, None, 128 + 25, (Ended.DISK_LIMIT, None, "wrote a file of more than 1000 bytes")),
        (LATE, FULL, 137, (Ended.WALL_LIMIT, None, "too long; full")),
        (KILLED, KILLED, 137, (Ended.MEMORY_LIMIT, None, "out of memory")),
    ],
)
def test_what_was_reached_explains_a_failure(
    cut: Breach | None, reached: Breach | None, status: int, expected: tuple[Ended, int | None, str]
) -> None:
    outcome = ProcessOutcome(cut, 0, b"out", b"err", 1.5)
    assert explain_end(outcome, status, reached, LIMITS) == expected
