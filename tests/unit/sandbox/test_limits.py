"""Exceeds every limit on the real backend: each ends the run or explains its failure."""

from __future__ import annotations

import pytest

from sandbox.cgroups import Bound, usable_hierarchies
from sandbox.types import Ended, RunResult
from tests.support.sandboxes import Runner

pytestmark = pytest.mark.slow

MIB = 1024 * 1024

BURN = "end = time.process_time() + {seconds}\nwhile time.process_time() < end: pass"

MANY_SHORT = """
import os, sys, time
for _ in range({count}):
    if os.fork() == 0:
        end = time.process_time() + {seconds}
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
"""

THREADS = """
import sys, threading
stop = threading.Event()
try:
    for _ in range({count}):
        threading.Thread(target=stop.wait, args=(10,)).start()
except RuntimeError as error:
    # What a test run does: it goes on, and fails in the end.
    stop.wait({hold}); stop.set(); sys.exit(str(error))
stop.set()
"""


@pytest.fixture(scope="module")
def grouped() -> Runner:
    """Runs commands by bwrap where control groups bound everything."""
    bounds = {bound for one in usable_hierarchies() for bound in one.bounds}
    if not bounds.issuperset(Bound):
        pytest.skip("no control groups can be had here")
    return Runner("bwrap")


def outcome(result: RunResult) -> tuple[Ended, int | None]:
    return result.ended, result.exit_code


def test_many_short_processes_share_the_cpu_time(grouped: Runner) -> None:
    """Each uses a tenth of the limit, which holds for all of them together."""
    result = grouped.python(MANY_SHORT.format(count=60, seconds=0.1), cpu_seconds=1)
    assert outcome(result) == (Ended.CPU_LIMIT, None)
    assert result.detail == "used 1 s of CPU time"
    assert result.seconds < 15


RESERVE = "import mmap; mmap.mmap(-1, 64 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANON | 0x4000)"


@pytest.mark.parametrize(
    ("code", "limits"),
    [
        ("import time\n" + BURN.format(seconds=0.3), {"cpu_seconds": 5}),
        (THREADS.format(count=30, hold=0), {"processes": 40}),
        ("open('f', 'wb').write(bytes(30_000_000)); import time; time.sleep(0.3)",
         {"workspace": 64 * MIB}),
    ],
)  # fmt: skip
def test_what_stays_within_its_limit_is_no_breach(
    isolated: Runner, code: str, limits: dict[str, float]
) -> None:
    assert outcome(isolated.python(code, **limits)) == (Ended.EXITED, 0)


def test_reserved_memory_is_not_used_memory(grouped: Runner) -> None:
    """A JVM, Go and Node reserve memory (MAP_NORESERVE); a limit on address space breaks them."""
    assert outcome(grouped.python(RESERVE, memory=100 * MIB)) == (Ended.EXITED, 0)


def test_a_refused_process_is_told_at_once(grouped: Runner) -> None:
    result = grouped.python(THREADS.format(count=200, hold=0), processes=40)
    assert outcome(result) == (Ended.PROCESS_LIMIT, None)


def test_a_refused_process_that_did_no_harm_is_mentioned(grouped: Runner) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; exit 0"
    bash = grouped("/bin/bash", "-c", "(" + script + ") 2>/dev/null; exit 0", processes=6)
    assert outcome(bash) == (Ended.EXITED, 0)
    assert bash.detail == "reached the limit of 6 processes and threads"


def test_what_is_written_at_the_very_end_counts(isolated: Runner) -> None:
    script = "for i in 1 2 3; do head -c 30000000 /dev/zero >f$i; done"
    assert isolated.shell(script, workspace=64 * MIB).ended is Ended.DISK_LIMIT


def test_files_without_a_name_count(isolated: Runner) -> None:
    code = """
import os, time
held = []
for i in range(100):
    held.append(os.open("f", os.O_CREAT | os.O_RDWR)); os.unlink("f")
    os.write(held[-1], bytes(4 << 20)); time.sleep(0.01)
time.sleep(20)
"""
    result = isolated.python(code, workspace=64 * MIB)
    assert outcome(result) == (Ended.DISK_LIMIT, None)
