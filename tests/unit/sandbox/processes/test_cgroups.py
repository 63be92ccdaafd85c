"""Control groups: the files of version 2 in a plain directory, behaviour on this machine's own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sandbox.cgroups import (
    Bound,
    ControlGroup,
    Hierarchy,
    find_hierarchies,
    make_group,
    memory_left,
    sweep_groups,
    usable_hierarchies,
)
from sandbox.types import Limits, SandboxError

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


def unified_machine(directory: Path, controllers: Iterable[str]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.subtree_control").write_text(" ".join(controllers) + "\n")
    (directory / "cgroup.procs").write_text("")
    return directory


def test_version_2_takes_the_nearest_group_that_hands_its_controllers_on(machine: Machine) -> None:
    top = unified_machine(
        machine.mount("cgroup", "cgroup2", "nsdelegate"), ["cpu", "memory", "pids"]
    )
    slice_ = unified_machine(top / "user.slice", ["memory", "pids"])
    unified_machine(slice_ / "session.scope", [])
    machine.group("", "/user.slice/session.scope")
    assert machine.found() == (Hierarchy(slice_, EVERYTHING, unified=True),)


def test_version_2_without_both_controllers_is_of_no_use(machine: Machine) -> None:
    unified_machine(machine.mount("cgroup", "cgroup2", ""), ["cpu", "pids"])
    machine.group("", "/")
    assert machine.found() == ()


def test_a_group_above_what_is_mounted_is_not_looked_for(machine: Machine) -> None:
    unified_machine(machine.root, ["memory", "pids"])
    unified_machine(machine.mount("cgroup", "cgroup2", ""), [])
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
    top = unified_machine(machine.mount("cgroup/unified", "cgroup2", ""), ["memory", "pids"])
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


MIB = 1024 * 1024
ROOT = Path(__file__).resolve().parents[4]
LIMITS = Limits(memory=100 * MIB, processes=20)


@pytest.fixture
def unified(tmp_path: Path) -> Hierarchy:
    return Hierarchy(tmp_path, frozenset(Bound), unified=True)


@pytest.fixture
def real() -> Iterator[ControlGroup]:
    group = make_group(LIMITS, _usable())
    yield group
    group.remove()


def _usable() -> tuple[Hierarchy, ...]:
    if not (found := usable_hierarchies()):
        pytest.skip("no control groups can be had here")
    return found


def contents(directory: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(directory.iterdir())}


def test_version_2_is_set_before_anything_enters(unified: Hierarchy) -> None:
    group = make_group(LIMITS, [unified])
    assert contents(unified.directory / group.name) == {
        "memory.max": str(100 * MIB),
        "memory.oom.group": "1",
        "memory.swap.max": "0",
        "pids.max": "21",  # the sandbox's own first process is one of them
    }


def test_version_2_is_entered_by_writing_the_pid(unified: Hierarchy) -> None:
    group = make_group(LIMITS, [unified])
    group.enter(4711)
    assert (unified.directory / group.name / "cgroup.procs").read_text() == "4711"


def test_version_2_tells_what_happened(unified: Hierarchy) -> None:
    group = make_group(LIMITS, [unified])
    directory = unified.directory / group.name
    assert (group.cpu_seconds(), group.memory_kills(), group.refused_processes()) == (0, 0, 0)
    (directory / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    (directory / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n")
    (directory / "pids.events").write_text("max 3\n")
    assert (group.cpu_seconds(), group.memory_kills(), group.refused_processes()) == (2.5, 1, 3)


def test_version_1_is_set_and_told_by_its_own_files(tmp_path: Path) -> None:
    hierarchies = []
    for name, bound in (("m", Bound.MEMORY), ("p", Bound.PROCESSES), ("c", Bound.CPU)):
        (tmp_path / name).mkdir()
        hierarchies.append(Hierarchy(tmp_path / name, frozenset({bound}), unified=False))
    group = make_group(LIMITS, hierarchies)
    assert contents(tmp_path / "m" / group.name) == {
        "memory.limit_in_bytes": str(100 * MIB),
        "memory.memsw.limit_in_bytes": str(100 * MIB),
    }
    assert contents(tmp_path / "p" / group.name) == {"pids.max": "21"}
    (tmp_path / "c" / group.name / "cpuacct.usage").write_text("1500000000\n")
    (tmp_path / "m" / group.name / "memory.oom_control").write_text("under_oom 0\noom_kill 2\n")
    assert (group.cpu_seconds(), group.memory_kills()) == (1.5, 2)


def test_what_is_not_bounded_is_not_told(tmp_path: Path) -> None:
    group = make_group(LIMITS, [])
    assert group.bounds == frozenset()
    assert (group.cpu_seconds(), group.memory_kills(), group.refused_processes()) == (None, 0, 0)
    group.remove()


def test_a_group_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    here = Hierarchy(tmp_path, frozenset(), unified=True)
    gone = Hierarchy(tmp_path / "absent", frozenset(Bound), unified=True)
    with pytest.raises(SandboxError, match="control group"):
        make_group(LIMITS, [here, gone])
    assert list(tmp_path.iterdir()) == []


def test_only_what_can_be_entered_is_usable(tmp_path: Path) -> None:
    gone = Hierarchy(tmp_path / "absent", frozenset(Bound), unified=True)
    assert usable_hierarchies([gone]) == ()


def test_a_process_and_what_it_starts_are_inside(real: ControlGroup) -> None:
    script = "cat /proc/self/cgroup; exec cat"
    with subprocess.Popen(
        ["/bin/sh", "-c", f"read go; {script}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        real.enter(process.pid)
        said, _ = process.communicate(b"go\n", timeout=10)
    assert said.decode().count(real.name) == len(real.hierarchies)


def test_a_command_enters_by_itself(real: ControlGroup) -> None:
    argv = (*real.entry(), "cat", "/proc/self/cgroup", "--")
    said = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    assert said.stdout.count(real.name) == len(real.hierarchies)


def test_time_of_ended_processes_is_counted(real: ControlGroup) -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([*real.entry(), sys.executable, "-c", code], timeout=20, check=True)
    used = real.cpu_seconds()
    assert used is not None
    assert 0.3 <= used < 2


def test_version_2_counts_time_without_any_controller() -> None:
    """Where both versions are mounted, version 2 has its own files but no controllers."""
    top = _unified_mount()
    (one,) = usable_hierarchies([Hierarchy(top, frozenset({Bound.CPU}), unified=True)])
    group = make_group(LIMITS, [one])
    try:
        code = "import time\nwhile time.process_time() < 0.3: pass"
        subprocess.run([*group.entry(), sys.executable, "-c", code], timeout=20, check=True)
        used = group.cpu_seconds()
        assert used is not None
        assert 0.3 <= used < 2
    finally:
        group.remove()
    assert not (top / group.name).exists()


def _unified_mount() -> Path:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        top = Path(before.split(" ")[4])
        if after.startswith("cgroup2 ") and os.access(top / "cgroup.procs", os.W_OK):
            return top
    pytest.skip("no version 2 that we may write to")


def test_removing_ends_what_is_left_inside() -> None:
    group = make_group(LIMITS, _usable())
    with subprocess.Popen([*group.entry(), "sleep", "60"]) as process:
        _wait_until_inside(group, process.pid)
        group.remove()
        assert process.wait(10) == -9
    group.remove()
    assert not any((one.directory / group.name).exists() for one in group.hierarchies)


def test_groups_of_a_killed_agent_are_swept_and_others_stay(real: ControlGroup) -> None:
    code = (
        "import os, signal, subprocess; from sandbox.cgroups import *; "
        "from sandbox.types import Limits; group = make_group(Limits(), usable_hierarchies()); "
        "subprocess.Popen([*group.entry(), 'sleep', '60'], stdout=subprocess.DEVNULL); "
        "print(group.name, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    dead = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=20
    )
    name = dead.stdout.strip()
    assert name.startswith("patchshot-")
    sweep_groups()
    assert not any((one.directory / name).exists() for one in real.hierarchies)
    assert all((one.directory / real.name).is_dir() for one in real.hierarchies)


@pytest.mark.parametrize(
    "name",
    [
        "patchshot-mine",
        "patchshot-1-2-3-0123456789abcdef",
        f"patchshot-1-{os.getpid()}-1-01234567",  # of another process namespace
        "other-1-2-3-01234567",
    ],
    ids=["no-numbers", "too-long", "another-namespace", "another-prefix"],
)
def test_groups_of_others_are_not_swept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert sweep_groups([Hierarchy(tmp_path, frozenset(Bound), unified=True)]) == ()
    assert (tmp_path / name).is_dir()


def test_a_reused_pid_is_not_taken_for_the_maker(tmp_path: Path) -> None:
    own = Path("/proc/self/ns/pid").stat().st_ino
    stale = tmp_path / f"patchshot-{own}-{os.getpid()}-1-01234567"
    stale.mkdir()
    assert sweep_groups([Hierarchy(tmp_path, frozenset(Bound), unified=True)]) == (stale,)
    assert not stale.exists()


def _wait_until_inside(group: ControlGroup, pid: int) -> None:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/cgroup").read_text().count(group.name) < len(group.hierarchies):
        assert time.monotonic() < deadline
        time.sleep(0.01)
