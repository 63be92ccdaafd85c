"""Measures a private copy. test_limits shows how a run ends that exceeds its limit."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sandbox.meters import DiskMeter, largest_file
from sandbox.supervise import Breach
from sandbox.types import Ended, Limits

MIB = 1024 * 1024
LIMITS = Limits(workspace=8 * MIB, file_size=MIB)


def meter(*places: Path) -> DiskMeter:
    return DiskMeter(places, LIMITS, lambda: [os.getpid()])


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


def test_only_a_file_of_exactly_the_largest_size_explains(tmp_path: Path) -> None:
    fill(tmp_path / "d" / "almost", MIB - 1)
    assert largest_file([tmp_path], LIMITS) is None
    fill(tmp_path / "d" / "full", MIB)
    found = largest_file([tmp_path], LIMITS)
    assert found == Breach(
        Ended.DISK_LIMIT, f"a file reached the limit of {MIB} bytes", decisive=False
    )
