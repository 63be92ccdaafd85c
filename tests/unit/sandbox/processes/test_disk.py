"""Measures a private copy. test_limits shows how a run ends that exceeds its limit."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from sandbox.processes.disk import DiskMeter, FileSystem, largest_file
from sandbox.processes.supervise import Breach
from sandbox.types import Ended, Limits

MIB = 1024 * 1024
LIMITS = Limits(workspace=8 * MIB, file_size=MIB)


def meter(*places: Path) -> DiskMeter:
    return DiskMeter(places, LIMITS, lambda: [os.getpid()])


def asked_until_counted(one: DiskMeter) -> Breach | None:
    """Return the first answer of a count, as a running command gets it."""
    one.enter(os.getpid())
    deadline = time.monotonic() + 20
    while one._count is not None:
        assert time.monotonic() < deadline
        if found := one.breach():
            return found
        time.sleep(0.01)
    return None


def fill(place: Path, size: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(bytes(size))


def test_what_was_there_before_counts_too(tmp_path: Path) -> None:
    fill(tmp_path / "big", 9 * MIB)
    found = asked_until_counted(meter(tmp_path))
    assert found == Breach(
        Ended.DISK_LIMIT, f"the private copy outgrew its limit of {8 * MIB} bytes"
    )


def test_several_places_are_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill(tmp_path / name / "half", 5 * MIB)
    assert asked_until_counted(meter(tmp_path / "a")) is None
    assert asked_until_counted(meter(tmp_path / "a", tmp_path / "b")) is not None


def test_links_out_of_it_and_second_names_count_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "outside" / "big", 20 * MIB)
    inside = tmp_path / "inside"
    fill(inside / "file", 5 * MIB)
    (inside / "link").symlink_to(tmp_path / "outside")
    os.link(inside / "file", inside / "second")
    assert asked_until_counted(meter(inside)) is None


def test_growth_is_seen_while_it_goes_on(tmp_path: Path) -> None:
    one = meter(tmp_path)
    assert asked_until_counted(one) is None
    fill(tmp_path / "big", 9 * MIB)
    deadline = time.monotonic() + 20
    while one.breach() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_end_counts_again(tmp_path: Path) -> None:
    one = meter(tmp_path)
    assert asked_until_counted(one) is None
    fill(tmp_path / "big", 9 * MIB)
    found = one.after()
    assert found is not None
    assert found.decisive


def test_closing_ends_a_count(tmp_path: Path) -> None:
    one = meter(tmp_path)
    one.enter(os.getpid())
    one.close()
    one.close()
    children = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "du"], capture_output=True, text=True, timeout=10
    )
    assert children.stdout == ""


def test_only_a_file_of_exactly_the_largest_size_explains(tmp_path: Path) -> None:
    fill(tmp_path / "d" / "almost", MIB - 1)
    assert largest_file([tmp_path], LIMITS) is None
    fill(tmp_path / "d" / "full", MIB)
    found = largest_file([tmp_path], LIMITS)
    assert found == Breach(
        Ended.DISK_LIMIT, f"a file reached the limit of {MIB} bytes", decisive=False
    )


def test_entries_weigh_as_much_as_blocks() -> None:
    empty, full = FileSystem(1000, 10), FileSystem(1000, 12)
    assert full.beyond(empty) == 2 * 4096
    assert empty.beyond(full) == 0
    assert FileSystem(9000, 10).beyond(empty) == 8000
