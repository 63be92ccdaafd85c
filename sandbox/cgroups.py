"""Control groups: bounds on all processes of a run together, where this machine lets us set them.

Version 2 (Documentation/admin-guide/cgroup-v2.rst of Linux) and version 1 (cgroup-v1/memory.rst,
pids.rst, cpuacct.rst). Root nearly always may set them, a user only below a group that was
delegated to it. A group's name says which process made it, so that a later agent can find and
remove the groups of a killed one.
"""

from __future__ import annotations

import enum
import os
import re
import secrets
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self

from sandbox.killing import remove_group, start_time
from sandbox.types import Limits, SandboxError

_PROC = Path("/proc")
_PROC_SELF = Path("/proc/self")
_ROOT = Path("/sys/fs/cgroup")

_NAME = re.compile(r"patchshot-(\d+)-(\d+)-(\d+)-[0-9a-f]{8}")

# The first process of a sandbox is ours, and counted.
_OWN_PROCESSES = 1

_MICROSECONDS = 1e6
_NANOSECONDS = 1e9

# POSIX sh: "0" is whoever writes. The names come as arguments, the command after `--`.
_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift; exec "$@"'


class Bound(enum.StrEnum):
    """What a hierarchy can bound for all processes of a group together."""

    MEMORY = "memory"
    PROCESSES = "processes"
    CPU = "cpu"


# Controllers of version 1. `cpuacct` only counts; we end a run that used too much.
_OLD = {"memory": Bound.MEMORY, "pids": Bound.PROCESSES, "cpuacct": Bound.CPU}

# Controllers of version 2, where every group counts time (cpu.stat).
_NEW = {"memory": Bound.MEMORY, "pids": Bound.PROCESSES}

_OLD_MEMORY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_NEW_MEMORY = ("memory.max", "memory.current", "inactive_file")


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
        self.remove()

    @property
    def bounds(self) -> frozenset[Bound]:
        """What is bounded (or, for CPU time, counted) for all processes together."""
        return frozenset(bound for one in self.hierarchies for bound in one.bounds)

    def enter(self, pid: int) -> None:
        """Move a process in; processes that it starts later are in too. Raises SandboxError."""
        try:
            for directory in self.directories():
                (directory / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except ProcessLookupError:
            pass  # it ended meanwhile
        except OSError as error:
            raise SandboxError(f"cannot put a process into its control group: {error}") from error

    def entry(self) -> tuple[str, ...]:
        """A command that enters the group and then becomes the command that follows it."""
        files = (str(directory / "cgroup.procs") for directory in self.directories())
        return ("/bin/sh", "-c", _ENTER, "sh", *files, "--")

    def cpu_seconds(self) -> float | None:
        """User and system time of all processes, ended ones included; None when not counted."""
        found = self._find(Bound.CPU)
        if found is None:
            return None
        hierarchy, directory = found
        if hierarchy.unified:
            return _count(directory / "cpu.stat", "usage_usec") / _MICROSECONDS
        return int(_read(directory / "cpuacct.usage") or 0) / _NANOSECONDS

    def memory_kills(self) -> int:
        """How many processes the kernel killed because the memory of all was used up."""
        found = self._find(Bound.MEMORY)
        if found is None:
            return 0
        hierarchy, directory = found
        file = "memory.events" if hierarchy.unified else "memory.oom_control"
        return _count(directory / file, "oom_kill")

    def refused_processes(self) -> int:
        """How many forks the kernel refused because there were too many processes."""
        found = self._find(Bound.PROCESSES)
        return 0 if found is None else _count(found[1] / "pids.events", "max")

    def remove(self) -> None:
        """Kill what is left inside and delete the groups. Safe to call twice; never raises."""
        for directory in self.directories():
            remove_group(directory)

    def directories(self) -> list[Path]:
        """The directories of the groups, one in each hierarchy."""
        return [hierarchy.directory / self.name for hierarchy in self.hierarchies]

    def _find(self, bound: Bound) -> tuple[Hierarchy, Path] | None:
        for hierarchy in self.hierarchies:
            if bound in hierarchy.bounds:
                return hierarchy, hierarchy.directory / self.name
        return None


def make_group(limits: Limits, hierarchies: Sequence[Hierarchy]) -> ControlGroup:
    """Make a group in each hierarchy and set the limits on the whole run (memory, processes).

    Raises SandboxError when one cannot be made or set; nothing is left then.
    """
    group = ControlGroup(tuple(hierarchies), _own_name())
    try:
        for hierarchy in hierarchies:
            directory = hierarchy.directory / group.name
            directory.mkdir()
            for file, value in _settings(hierarchy, limits):
                (directory / file).write_text(value, encoding="ascii")
            for file, value in _swap_settings(hierarchy, limits):
                _try_to_write(directory / file, value)
    except OSError as error:
        group.remove()
        raise SandboxError(f"cannot make a control group: {error}") from error
    return group


def usable_hierarchies(found: Iterable[Hierarchy] | None = None) -> tuple[Hierarchy, ...]:
    """Return the hierarchies (default: all of this machine) in which groups can really be used.

    Tries each with a process that does nothing, which costs some milliseconds.
    """
    candidates = find_hierarchies() if found is None else tuple(found)
    return tuple(one for one in candidates if _works(one))


def sweep_groups(found: Iterable[Hierarchy] | None = None) -> tuple[Path, ...]:
    """Kill and remove what killed agents left behind; return the removed groups in path order.

    Only groups whose maker belonged to our own process namespace and has ended.
    """
    candidates = find_hierarchies() if found is None else tuple(found)
    left = (path for one in candidates for path in one.directory.glob("patchshot-*"))
    stale = sorted(path for path in left if _is_stale(path.name))
    for path in stale:
        remove_group(path)
    return tuple(stale)


def _settings(hierarchy: Hierarchy, limits: Limits) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if Bound.MEMORY in hierarchy.bounds:
        file = "memory.max" if hierarchy.unified else "memory.limit_in_bytes"
        found.append((file, str(limits.memory)))
    if Bound.PROCESSES in hierarchy.bounds:
        found.append(("pids.max", str(limits.processes + _OWN_PROCESSES)))
    return found


def _swap_settings(hierarchy: Hierarchy, limits: Limits) -> list[tuple[str, str]]:
    """Settings that not every kernel has. Without them, all of the machine's swap can be used."""
    if Bound.MEMORY not in hierarchy.bounds:
        return []
    if hierarchy.unified:
        return [("memory.swap.max", "0"), ("memory.oom.group", "1")]
    return [("memory.memsw.limit_in_bytes", str(limits.memory))]


def _works(hierarchy: Hierarchy) -> bool:
    try:
        with (
            make_group(Limits(), (hierarchy,)) as group,
            subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as idle,
        ):
            group.enter(idle.pid)
    except (OSError, SandboxError):
        return False
    return True


def _own_name() -> str:
    pid = os.getpid()
    return f"patchshot-{_namespace()}-{pid}-{start_time(pid)}-{secrets.token_hex(4)}"


def _namespace() -> int:
    """Identify the process namespace: a pid of another one means nothing here."""
    return Path("/proc/self/ns/pid").stat().st_ino


def _is_stale(name: str) -> bool:
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) != _namespace():
        return False
    return start_time(int(match[2])) != int(match[3])


# ------------------------------------- hierarchies and groups in /proc (proc(5) and cgroups(7))


@dataclass(frozen=True, slots=True)
class _Mount:
    root: str  # the group that is shown at the mount point
    point: Path
    kind: str
    options: frozenset[str]


def find_hierarchies(proc: Path = _PROC_SELF) -> tuple[Hierarchy, ...]:
    """Return candidates on this machine in order of their directories; no bound is in two.

    `usable_hierarchies` finds out by trying whether we may use one.
    """
    own = _read_groups(proc)
    found: dict[Path, Hierarchy] = {}
    taken: set[Bound] = set()
    # Version 2 first: where both are mounted, a controller is in one of them only.
    for mount in sorted(_mounts(proc), key=lambda mount: (mount.kind != "cgroup2", mount.point)):
        find = _unified_hierarchy if mount.kind == "cgroup2" else _old_hierarchy
        hierarchy = find(mount, own)
        if hierarchy is not None and not taken & hierarchy.bounds:
            taken |= hierarchy.bounds
            found.setdefault(hierarchy.directory, hierarchy)
    return tuple(found[directory] for directory in sorted(found))


def find_group(pid: int, proc: Path = _PROC, root: Path = _ROOT) -> ControlGroup | None:
    """Return the control group that a process is in, to be read and never changed.

    None when it is our own, or when groups are not mounted where every distribution mounts them.
    """
    theirs, ours = _read_groups(proc / str(pid)), _read_groups(proc / "self")
    kinds = [(name, frozenset({bound}), False) for name, bound in _OLD.items()]
    found = [
        (Hierarchy(directory.parent, bounds, unified), directory.name)
        for name, bounds, unified in (*kinds, ("", frozenset(Bound), True))
        if name in theirs
        and theirs[name] != ours.get(name)
        and ".." not in Path(theirs[name]).parts
        if (directory := root / name / theirs[name].lstrip("/")).is_dir()
    ]
    names = {name for _, name in found}
    if len(names) != 1:
        return None
    return ControlGroup(tuple(hierarchy for hierarchy, _ in found), names.pop())


def memory_left(proc: Path = _PROC_SELF) -> int | None:
    """Bytes that the groups around this process leave it (a container's limit); None: no limit.

    File content that the kernel can drop at once counts as left, as `docker stats` has it.
    """
    own = _read_groups(proc)
    found: list[int] = []
    for mount in _mounts(proc):
        if mount.kind == "cgroup2":
            names, group = _NEW_MEMORY, own.get("", "/")
        elif "memory" in mount.options:
            names, group = _OLD_MEMORY, own.get("memory", "/")
        else:
            continue
        inner = _shown_directory(mount, group)
        inside = (one for one in (inner, *inner.parents) if one.is_relative_to(mount.point))
        found += [left for one in inside if (left := _memory_left_in(one, *names)) is not None]
    return min(found, default=None)


def _memory_left_in(group: Path, limit: str, used: str, droppable: str) -> int | None:
    most, now = _read(group / limit), _read(group / used)
    if not (most.isdigit() and now.isdigit()):
        return None  # "max", or the controller is not here
    return max(0, int(most) - max(0, int(now) - _count(group / "memory.stat", droppable)))


def _old_hierarchy(mount: _Mount, own: dict[str, str]) -> Hierarchy | None:
    controllers = sorted(name for name in _OLD if name in mount.options)
    if not controllers:
        return None
    directory = _shown_directory(mount, own.get(controllers[0], "/"))
    bounds = frozenset(_OLD[name] for name in controllers)
    return Hierarchy(directory, bounds, unified=False) if directory.is_dir() else None


def _unified_hierarchy(mount: _Mount, own: dict[str, str]) -> Hierarchy | None:
    """Find the nearest group around us that hands its controllers on and that we may move within.

    Only a group without processes of its own can hand them on ("no internal processes"), so it is
    rarely our own group but one above it.
    """
    inner = _shown_directory(mount, own.get("", "/"))
    for directory in (inner, *inner.parents):
        given = frozenset(_read(directory / "cgroup.subtree_control").split())
        if os.access(directory / "cgroup.procs", os.W_OK) and given.issuperset(_NEW):
            return Hierarchy(directory, frozenset(Bound), unified=True)
        if directory == mount.point:
            break
    return None


def _shown_directory(mount: _Mount, group: str) -> Path:
    """The group's directory; the mount point when the group lies outside what is mounted."""
    path, root = PurePosixPath(group), PurePosixPath(mount.root)
    if ".." in path.parts or ".." in root.parts or not path.is_relative_to(root):
        return mount.point
    return mount.point / path.relative_to(root)


def _read_groups(process: Path) -> dict[str, str]:
    """The groups of a process by controller; under "" that of version 2."""
    found: dict[str, str] = {}
    for line in _read(process / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _mounts(proc: Path) -> list[_Mount]:
    """proc(5): id, parent, device, root, mount point, options, tags, "-", type, source, options."""
    found: list[_Mount] = []
    for line in _read(proc / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, point = map(_unescaped, before.split(" ")[3:5])
            found.append(_Mount(root, Path(point), kind, frozenset(options.split(","))))
    return found


def _unescaped(text: str) -> str:
    """Replace three octal digits after a backslash, which stand for blanks and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _try_to_write(file: Path, value: str) -> None:
    try:
        file.write_text(value, encoding="ascii")
    except OSError:
        pass


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""


def _count(file: Path, key: str) -> int:
    """The number after `key` in a file of lines `key number`; 0 when there is none."""
    for line in _read(file).splitlines():
        name, _, number = line.partition(" ")
        if name == key:
            return int(number)
    return 0
