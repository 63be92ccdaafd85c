"""Control groups: bounds on all processes of a run together, where this machine lets us set them.

Version 2 (cgroup-v2.rst of Linux) and version 1 (memory.rst, pids.rst, cpuacct.rst). Root nearly
always may set them, a user only below a group that was delegated to it.
"""

from __future__ import annotations

import enum
import functools
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.killing import is_abandoned, new_name, remove_group
from sandbox.types import Limits, SandboxError

_PROC, _ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")

_MICROSECONDS, _NANOSECONDS = 1e6, 1e9

# POSIX sh: "0" is whoever writes. The names come as arguments, the command after `--`.
_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift; exec "$@"'


class Bound(enum.StrEnum):
    """What a hierarchy can bound for all processes of a group together."""

    MEMORY = "memory"
    PROCESSES = "processes"
    CPU = "cpu"


# Controllers of version 1, each its own hierarchy. `cpuacct` only counts; we end a run that used
# too much. In version 2 one hierarchy holds all, and every group counts time (cpu.stat).
_CONTROLLERS = {"cpuacct": Bound.CPU, "memory": Bound.MEMORY, "pids": Bound.PROCESSES}
_HANDED_ON = {"memory", "pids"}


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A directory in which groups for `bounds` can be made; `unified` is version 2."""

    directory: Path
    bounds: frozenset[Bound]
    unified: bool


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One run's groups, one in each of the `hierarchies`. A context manager that removes them."""

    hierarchies: tuple[Hierarchy, ...]
    name: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for directory in self.directories():
            remove_group(directory)

    @property
    def bounds(self) -> frozenset[Bound]:
        """What is bounded (or, for CPU time, counted) for all processes together."""
        return frozenset(bound for one in self.hierarchies for bound in one.bounds)

    def entry(self) -> tuple[str, ...]:
        """A command that enters the group and then becomes the command that follows it."""
        files = (str(directory / "cgroup.procs") for directory in self.directories())
        return ("/bin/sh", "-c", _ENTER, "sh", *files, "--")

    def cpu_seconds(self) -> float:
        """User and system time of all processes, ended ones included; 0 when not counted."""
        microseconds = self._count(Bound.CPU, "cpu.stat", "usage_usec") / _MICROSECONDS
        return microseconds or self._count(Bound.CPU, "cpuacct.usage") / _NANOSECONDS

    def memory_kills(self) -> int:
        """How many processes the kernel killed because the memory of all was used up."""
        kills = self._count(Bound.MEMORY, "memory.events", "oom_kill")
        return kills or self._count(Bound.MEMORY, "memory.oom_control", "oom_kill")

    def refused_processes(self) -> int:
        """How many forks the kernel refused because there were too many processes."""
        return self._count(Bound.PROCESSES, "pids.events", "max")

    def directories(self) -> list[Path]:
        """The directories of the groups, one in each hierarchy."""
        return [hierarchy.directory / self.name for hierarchy in self.hierarchies]

    def _count(self, bound: Bound, file: str, key: str = "") -> int:
        places = [one.directory for one in self.hierarchies if bound in one.bounds]
        return _count(places[0] / self.name / file, key) if places else 0


def make_group(limits: Limits, hierarchies: tuple[Hierarchy, ...], own: int = 1) -> ControlGroup:
    """Make a group in each hierarchy with the limits on the whole run (memory, processes).

    `own` processes are the sandbox's. Raises SandboxError, and leaves nothing then.
    """
    group = ControlGroup(hierarchies, new_name())
    try:
        for hierarchy, directory in zip(hierarchies, group.directories(), strict=True):
            directory.mkdir()
            if Bound.MEMORY in hierarchy.bounds:
                _bound_memory(directory, str(limits.memory), unified=hierarchy.unified)
            if Bound.PROCESSES in hierarchy.bounds:
                most = str(limits.processes + own)
                (directory / "pids.max").write_text(most, encoding="ascii")
    except OSError as error:
        group.__exit__()
        raise SandboxError(f"cannot make a control group: {error}") from error
    return group


def _bound_memory(directory: Path, most: str, *, unified: bool) -> None:
    file = "memory.max" if unified else "memory.limit_in_bytes"
    (directory / file).write_text(most, encoding="ascii")
    # Settings that not every kernel has. Without them, all of the machine's swap can be used.
    swap = {"memory.swap.max": "0", "memory.oom.group": "1"}
    for name, value in (swap if unified else {"memory.memsw.limit_in_bytes": most}).items():
        with suppress(OSError):
            (directory / name).write_text(value, encoding="ascii")


@functools.cache
def usable_hierarchies() -> tuple[Hierarchy, ...]:
    """Return the hierarchies of this machine in which groups can really be used.

    Tries each with a process that does nothing, which costs some milliseconds.
    """
    return tuple(one for one in find_hierarchies() if _works(one))


def sweep_groups(hierarchies: tuple[Hierarchy, ...] | None = None) -> tuple[Path, ...]:
    """Kill and remove what killed agents left behind; return the removed groups in path order.

    Only groups whose maker belonged to our own process namespace and has ended.
    """
    candidates = find_hierarchies() if hierarchies is None else hierarchies
    groups = (path for one in candidates for path in one.directory.glob("patchshot-*"))
    stale = sorted(path for path in groups if is_abandoned(path.name))
    for path in stale:
        remove_group(path)
    return tuple(stale)


def _works(hierarchy: Hierarchy) -> bool:
    try:
        with make_group(Limits(), (hierarchy,)) as group:
            return subprocess.run([*group.entry(), "true"], check=False).returncode == 0
    except (OSError, SandboxError):
        return False


# ---- what this machine has (cgroups(7))


def find_hierarchies(own: Path = _PROC, root: Path = _ROOT) -> tuple[Hierarchy, ...]:
    """Return candidates in order of their directories; no bound is in two.

    `own` lists the groups of this process (proc(5)).
    """
    for mount in (root, root / "unified"):
        inner = _group_directory(mount, _read_groups(own).get("", "/"))
        # Only a group without processes of its own can hand controllers on ("no internal
        # processes"), so it is rarely our own group but one above it.
        for directory in (inner, *inner.parents):
            given = set(_read(directory / "cgroup.subtree_control").split())
            if given >= _HANDED_ON and os.access(directory / "cgroup.procs", os.W_OK):
                return (Hierarchy(directory, frozenset(Bound), unified=True),)
            if directory == mount:
                break
    hierarchies: dict[Path, Hierarchy] = {}
    for name, bound in _CONTROLLERS.items():
        if (root / name / "cgroup.procs").exists():
            directory = _group_directory(root / name, _read_groups(own).get(name, "/")).resolve()
            others = hierarchies[directory].bounds if directory in hierarchies else frozenset()
            hierarchies[directory] = Hierarchy(directory, others | {bound}, unified=False)
    return tuple(hierarchies[directory] for directory in sorted(hierarchies))


def _group_directory(mount: Path, group: str) -> Path:
    directory = mount / group.lstrip("/")
    return directory if ".." not in directory.parts and directory.is_dir() else mount


def _read_groups(file: Path) -> dict[str, str]:
    """The groups of a process by controller; under "" that of version 2."""
    groups: dict[str, str] = {}
    for line in _read(file).splitlines():
        _, controllers, path = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""


def _count(file: Path, key: str) -> int:
    """The number after `key` in a file of lines `key number`, "" for a number alone; else 0."""
    for line in _read(file).splitlines():
        name, _, number = f" {line}".rpartition(" ")
        if name.strip() == key:
            return int(number)
    return 0
