from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.container_launch import Status
from sandbox.container_meter import ContainerMeter, group_of
from sandbox.hierarchies import Bound
from sandbox.types import Ended, Limits

OURS = "4:memory:/\n8:pids:/\n2:cpuacct:/\n0::/\n"


def machine(root: Path, theirs: str, *directories: str) -> tuple[Path, Path]:
    """A /proc with us and process 7, and the groups that there are."""
    for pid, text in (("self", OURS), ("7", theirs)):
        (root / "proc" / pid).mkdir(parents=True)
        (root / "proc" / pid / "cgroup").write_text(text)
    for directory in directories:
        (root / "cgroup" / directory).mkdir(parents=True)
    return root / "proc", root / "cgroup"


def test_groups_of_version_1(tmp_path: Path) -> None:
    theirs = "4:memory:/pod/box-1\n8:pids:/pod/box-1\n2:cpuacct:/pod/box-1\n0::/pod/box-1\n"
    places = [f"{name}/pod/box-1" for name in ("memory", "pids", "cpuacct")]
    proc, root = machine(tmp_path, theirs, *places)
    group = group_of(7, proc, root)
    assert group is not None
    assert (group.name, group.bounds) == ("box-1", frozenset(Bound))
    (root / "pids/pod/box-1/pids.events").write_text("max 3\n")
    (root / "memory/pod/box-1/memory.oom_control").write_text("under_oom 0\noom_kill 2\n")
    assert (group.refused_processes(), group.memory_kills()) == (3, 2)


def test_a_group_of_version_2(tmp_path: Path) -> None:
    proc, root = machine(tmp_path, "0::/a.slice/box-2.scope\n", "a.slice/box-2.scope")
    group = group_of(7, proc, root)
    assert group is not None
    assert (group.name, group.bounds) == ("box-2.scope", frozenset(Bound))


@pytest.mark.parametrize(
    "theirs",
    [
        OURS,  # engines without groups leave a container in ours, which counts us too
        "0::/gone\n",
        "0::/../outside\n",
        "4:memory:/a/one\n8:pids:/a/two\n",
        "",
    ],
)
def test_a_group_that_is_not_the_containers_own_is_none(tmp_path: Path, theirs: str) -> None:
    proc, root = machine(tmp_path, theirs, "memory/a/one", "pids/a/two", "../outside")
    assert group_of(7, proc, root) is None


def test_a_process_that_has_ended_has_none(tmp_path: Path) -> None:
    assert group_of(8, *machine(tmp_path, OURS)) is None


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        (Status(started=True, ended=True), None),
        (Status(started=True, ended=True, killed=1), Ended.MEMORY_LIMIT),
        (Status(started=True, ended=True, killed=1, refused=1), Ended.MEMORY_LIMIT),
        (Status(started=True, ended=True, refused=1), Ended.PROCESS_LIMIT),
    ],
)
def test_what_the_script_counted_is_told_in_the_end(status: Status, ended: Ended | None) -> None:
    meter = ContainerMeter(Limits(), lambda: status)
    assert meter.breach() is None
    found = meter.after()
    assert (None if found is None else found.ended) == ended
