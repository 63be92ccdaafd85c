"""Where groups can be made: mounted hierarchies as /proc/self describes them, laid out in files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from sandbox.hierarchies import Bound, Hierarchy, find_hierarchies, memory_left

EVERYTHING = frozenset(Bound)


class Machine:
    """A `/proc/self` and the control groups of a machine, as ordinary files."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.proc.mkdir()
        self.root = root
        self._mounts: list[str] = ["22 1 8:1 / / rw - ext4 /dev/sda1 rw"]
        self._groups: list[str] = []

    def mount(self, point: str, kind: str, options: str, root: str = "/") -> Path:
        place = self.root / point
        place.mkdir(parents=True, exist_ok=True)
        escaped = str(place).replace(" ", r"\040")
        self._mounts.append(f"30 22 0:2 {root} {escaped} rw shared:9 - {kind} cgroup rw,{options}")
        return place

    def group(self, controllers: str, path: str) -> None:
        self._groups.append(f"{len(self._groups)}:{controllers}:{path}")

    def found(self) -> tuple[Hierarchy, ...]:
        return find_hierarchies(self._written())

    def memory_left(self) -> int | None:
        return memory_left(self._written())

    def _written(self) -> Path:
        (self.proc / "mountinfo").write_text("\n".join(self._mounts) + "\n")
        (self.proc / "cgroup").write_text("\n".join(self._groups) + "\n")
        return self.proc


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def unified(directory: Path, controllers: Iterable[str]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.subtree_control").write_text(" ".join(controllers) + "\n")
    (directory / "cgroup.procs").write_text("")
    return directory


def test_version_2_takes_the_nearest_group_that_hands_its_controllers_on(machine: Machine) -> None:
    top = unified(machine.mount("cgroup", "cgroup2", "nsdelegate"), ["cpu", "memory", "pids"])
    slice_ = unified(top / "user.slice", ["memory", "pids"])
    unified(slice_ / "session.scope", [])
    machine.group("", "/user.slice/session.scope")
    assert machine.found() == (Hierarchy(slice_, EVERYTHING, unified=True),)


def test_version_2_without_both_controllers_is_of_no_use(machine: Machine) -> None:
    unified(machine.mount("cgroup", "cgroup2", ""), ["cpu", "pids"])
    machine.group("", "/")
    assert machine.found() == ()


def test_a_group_above_what_is_mounted_is_not_looked_for(machine: Machine) -> None:
    unified(machine.root, ["memory", "pids"])
    unified(machine.mount("cgroup", "cgroup2", ""), [])
    machine.group("", "/")
    assert machine.found() == ()


def test_version_1_has_a_hierarchy_for_each_controller(machine: Machine) -> None:
    memory = machine.mount("cgroup/memory", "cgroup", "memory")
    pids = machine.mount("cgroup/pids", "cgroup", "pids")
    cpu = machine.mount("cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct")
    machine.mount("cgroup/freezer", "cgroup", "freezer")
    (memory / "job").mkdir()
    machine.group("memory", "/job")
    machine.group("cpu,cpuacct", "/")
    machine.group("pids", "/")
    assert machine.found() == (
        Hierarchy(cpu, frozenset({Bound.CPU}), unified=False),
        Hierarchy(memory / "job", frozenset({Bound.MEMORY}), unified=False),
        Hierarchy(pids, frozenset({Bound.PROCESSES}), unified=False),
    )


def test_a_container_sees_its_own_group_as_the_top(machine: Machine) -> None:
    memory = machine.mount("cgroup/memory", "cgroup", "memory", root="/docker/abc")
    (memory / "inner").mkdir()
    machine.group("memory", "/docker/abc/inner")
    assert [one.directory for one in machine.found()] == [memory / "inner"]


@pytest.mark.parametrize("own", ["/elsewhere", "/../.."])
def test_a_group_outside_of_what_is_shown_means_the_top(machine: Machine, own: str) -> None:
    memory = machine.mount("cgroup/memory", "cgroup", "memory", root="/docker/abc")
    machine.group("memory", own)
    assert [one.directory for one in machine.found()] == [memory]


def test_a_group_that_is_not_there_is_left_out(machine: Machine) -> None:
    machine.mount("cgroup/memory", "cgroup", "memory")
    machine.group("memory", "/gone")
    assert machine.found() == ()


def test_with_both_versions_mounted_each_bound_is_taken_once(machine: Machine) -> None:
    machine.mount("cgroup/memory", "cgroup", "memory")
    top = unified(machine.mount("cgroup/unified", "cgroup2", ""), ["memory", "pids"])
    machine.group("memory", "/")
    machine.group("", "/")
    assert machine.found() == (Hierarchy(top, EVERYTHING, unified=True),)


def test_blanks_in_a_mount_point(machine: Machine) -> None:
    pids = machine.mount("control groups/pids", "cgroup", "pids")
    machine.group("pids", "/")
    assert [one.directory for one in machine.found()] == [pids]


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    assert find_hierarchies(tmp_path / "absent") == ()


def memory(group: Path, limit: str, used: int, cached: int, *, old: bool = False) -> None:
    group.mkdir(parents=True, exist_ok=True)
    names = ("limit_in_bytes", "usage_in_bytes") if old else ("max", "current")
    (group / f"memory.{names[0]}").write_text(f"{limit}\n")
    (group / f"memory.{names[1]}").write_text(f"{used}\n")
    name = "total_inactive_file" if old else "inactive_file"
    (group / "memory.stat").write_text(f"file 1\n{name} {cached}\n")


def test_the_tightest_group_around_us_says_what_is_left(machine: Machine) -> None:
    top = machine.mount("cgroup", "cgroup2", "")
    memory(top / "a", "1000", used=700, cached=200)
    memory(top / "a" / "b", "max", used=600, cached=0)
    memory(top / "other", "10", used=10, cached=0)
    machine.group("", "/a/b")
    assert machine.memory_left() == 500


def test_version_1_says_what_is_left(machine: Machine) -> None:
    top = machine.mount("cgroup/memory", "cgroup", "memory")
    memory(top, "9223372036854771712", used=5000, cached=0, old=True)
    memory(top / "job", "4000", used=3000, cached=500, old=True)
    machine.group("memory", "/job")
    assert machine.memory_left() == 1500


def test_more_than_the_limit_leaves_nothing(machine: Machine) -> None:
    memory(machine.mount("cgroup", "cgroup2", ""), "1000", used=1200, cached=0)
    machine.group("", "/")
    assert machine.memory_left() == 0


def test_without_a_limit_nothing_is_said(machine: Machine) -> None:
    memory(machine.mount("cgroup", "cgroup2", ""), "max", used=1200, cached=0)
    machine.mount("cgroup/pids", "cgroup", "pids")
    machine.group("", "/")
    assert machine.memory_left() is None
