from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from sandbox.meters import TreeUsage, deleted_bytes, descendants, measure_usage

FAMILY = """
import os, sys, threading, time
while time.process_time() < 0.2: pass
if os.fork() == 0:
    if os.fork() == 0:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    else:
        pass
    os.write(1, b"x\\n")  # one system call, so that two processes cannot mix their lines
    time.sleep(30)
os.wait()
"""


def test_a_family_is_found_with_its_time_and_threads() -> None:
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as top:
        assert top.stdout is not None
        assert [top.stdout.readline() for _ in range(2)] == [b"x\n", b"x\n"]
        deadline = time.monotonic() + 20
        try:
            # The kernel may leave out a child while others come and go: a sample, not a promise.
            while measure_usage(found := descendants(top.pid)).threads != 4:
                assert time.monotonic() < deadline, measure_usage(found)
                time.sleep(0.01)
            assert (found[0], len(found)) == (top.pid, 3)
            assert 0.15 < measure_usage(found).cpu_seconds < 5
        finally:
            for pid in descendants(top.pid):
                os.kill(pid, 9)


def test_time_of_children_that_were_waited_for_is_counted() -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass"
    before = measure_usage([os.getpid()]).cpu_seconds
    subprocess.run([sys.executable, "-c", code], timeout=20, check=True)
    assert measure_usage([os.getpid()]).cpu_seconds - before >= 0.25


def test_what_is_gone_counts_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert measure_usage(descendants(process.pid)) == TreeUsage(0.0, 0)


def test_only_files_without_a_name_and_of_the_device_are_counted(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    before = deleted_bytes([os.getpid()], device)
    with (tmp_path / "a").open("wb") as nameless, (tmp_path / "b").open("wb") as named:
        for file in (nameless, named):
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
        assert deleted_bytes([os.getpid()], device) == before
        (tmp_path / "a").unlink()
        assert deleted_bytes([os.getpid(), os.getpid()], device) - before >= 1 << 20
        assert deleted_bytes([os.getpid()], device + 1) == 0
