"""Measures a private copy and processes. test_limits shows how a run ends at its limit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from sandbox.cgroups import ControlGroup
from sandbox.meters import DiskMeter, Meter, deleted_bytes, descendants
from sandbox.supervise import Breach
from sandbox.types import Ended, Limits

MIB = 1024 * 1024


def test_what_a_container_counted_is_told_in_the_end(tmp_path: Path) -> None:
    def ended(killed: int, refused: int) -> Ended | None:
        breach = Meter(Limits(), [tmp_path], ControlGroup((), "")).after(
            killed=killed, refused=refused
        )
        return None if breach is None else breach.ended

    assert ended(0, 0) is None
    assert ended(1, 0) == ended(1, 1) == Ended.MEMORY_LIMIT
    assert ended(0, 1) == Ended.PROCESS_LIMIT


def meter(*places: Path) -> DiskMeter:
    return DiskMeter(places, 8 * MIB, lambda: [os.getpid()])


def counted(one: DiskMeter) -> Breach | None:
    """Return what the first count says, which is made as soon as the meter is asked."""
    return one.breach()


def fill(place: Path, size: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(bytes(size))


def test_what_was_there_before_counts_too(tmp_path: Path) -> None:
    fill(tmp_path / "big", 9 * MIB)
    found = counted(meter(tmp_path))
    assert found == Breach(
        Ended.DISK_LIMIT, f"the private copy outgrew its limit of {8 * MIB} bytes"
    )


def test_several_places_are_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill(tmp_path / name / "half", 5 * MIB)
    assert counted(meter(tmp_path / "a")) is None
    assert counted(meter(tmp_path / "a", tmp_path / "b")) is not None


def test_links_out_of_it_and_second_names_count_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "outside" / "big", 20 * MIB)
    inside = tmp_path / "inside"
    fill(inside / "file", 5 * MIB)
    (inside / "link").symlink_to(tmp_path / "outside")
    os.link(inside / "file", inside / "second")
    assert counted(meter(inside)) is None


def test_growth_is_seen_while_it_goes_on(tmp_path: Path) -> None:
    one = meter(tmp_path)
    assert counted(one) is None
    fill(tmp_path / "big", 9 * MIB)
    deadline = time.monotonic() + 20
    while one.breach() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_end_counts_again(tmp_path: Path) -> None:
    one = meter(tmp_path)
    assert counted(one) is None
    fill(tmp_path / "big", 9 * MIB)
    found = one.after()
    assert found is not None
    assert found.decisive


FAMILY = """
import os, time
if os.fork() == 0:
    os.fork()
    os.write(1, b"x\\n")  # one system call, so that two processes cannot mix their lines
    time.sleep(30)
os.wait()
"""


def test_a_family_is_found() -> None:
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as top:
        assert top.stdout is not None
        assert [top.stdout.readline() for _ in range(2)] == [b"x\n", b"x\n"]
        deadline = time.monotonic() + 20
        try:
            # The kernel may leave out a child while others come and go: a sample, not a promise.
            while len(descendants(top.pid)) != 3:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            for pid in descendants(top.pid):
                os.kill(pid, 9)


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
