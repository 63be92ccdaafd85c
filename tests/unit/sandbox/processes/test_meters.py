"""Measures a private copy and processes. test_limits shows how a run ends at its limit."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.cgroups import ControlGroup
from sandbox.meters import DiskMeter, Meter
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


def test_links_out_of_it_and_second_names_count_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "outside" / "big", 20 * MIB)
    inside = tmp_path / "inside"
    fill(inside / "file", 5 * MIB)
    (inside / "link").symlink_to(tmp_path / "outside")
    os.link(inside / "file", inside / "second")
    assert counted(meter(inside)) is None
