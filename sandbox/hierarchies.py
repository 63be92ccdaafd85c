"""Where this process may make control groups: mounted hierarchies of version 1 and 2.

Read from /proc/self/mountinfo and /proc/self/cgroup (proc(5), cgroups(7)).
"""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_PROC_SELF = Path("/proc/self")


class Bound(enum.StrEnum):
    """What a hierarchy can bound for all processes of a group together."""

    MEMORY = "memory"
    PROCESSES = "processes"
    CPU = "cpu"


# Controllers of version 1. `cpuacct` counts; nothing but us ends what used too much.
_OLD = {"memory": Bound.MEMORY, "pids": Bound.PROCESSES, "cpuacct": Bound.CPU}

# Of version 2; time is counted in every group there (cpu.stat).
_NEW = {"memory": Bound.MEMORY, "pids": Bound.PROCESSES}

_OLD_MEMORY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A directory in which groups for `bounds` can be made; `unified` is version 2."""

    directory: Path
    bounds: frozenset[Bound]
    unified: bool


@dataclass(frozen=True, slots=True)
class _Mount:
    root: str  # the group that is shown at the mount point
    point: Path
    kind: str
    options: frozenset[str]


def find_hierarchies(proc: Path = _PROC_SELF) -> tuple[Hierarchy, ...]:
    """Candidates on this machine, each bound in at most one; in order of their directories.

    Being allowed to use one is found by trying (`sandbox.cgroups.usable_hierarchies`).
    """
    own = _own_groups(proc)
    found: dict[Path, Hierarchy] = {}
    taken: set[Bound] = set()
    # Version 2 first: where both are mounted, a controller is in one of them only.
    for mount in sorted(_mounts(proc), key=lambda mount: (mount.kind != "cgroup2", mount.point)):
        hierarchy = _unified(mount, own) if mount.kind == "cgroup2" else _old(mount, own)
        if hierarchy is not None and not taken & hierarchy.bounds:
            taken |= hierarchy.bounds
            found.setdefault(hierarchy.directory, hierarchy)
    return tuple(found[directory] for directory in sorted(found))


def memory_left(proc: Path = _PROC_SELF) -> int | None:
    """Bytes that the groups around this process leave it (a container's limit); None: no limit.

    File content that the kernel can drop at once counts as left, as `docker stats` has it.
    """
    own = _own_groups(proc)
    found: list[int] = []
    for mount in _mounts(proc):
        if mount.kind == "cgroup2":
            names, group = ("memory.max", "memory.current", "inactive_file"), own.get("", "/")
        elif "memory" in mount.options:
            names, group = _OLD_MEMORY, own.get("memory", "/")
        else:
            continue
        inner = _shown(mount, group)
        inside = (one for one in (inner, *inner.parents) if one.is_relative_to(mount.point))
        found += [left for one in inside if (left := _left(one, *names)) is not None]
    return min(found, default=None)


def _left(group: Path, limit: str, used: str, droppable: str) -> int | None:
    numbers = [_lines(group / name)[:1] for name in (limit, used)]
    if not all(line and line[0].isdigit() for line in numbers):
        return None  # "max", or the controller is not here
    (most,), (now,) = numbers
    for line in _lines(group / "memory.stat"):
        name, _, number = line.partition(" ")
        if name == droppable:
            return max(0, int(most) - max(0, int(now) - int(number)))
    return max(0, int(most) - int(now))


def _old(mount: _Mount, own: dict[str, str]) -> Hierarchy | None:
    controllers = sorted(name for name in _OLD if name in mount.options)
    if not controllers:
        return None
    directory = _shown(mount, own.get(controllers[0], "/"))
    bounds = frozenset(_OLD[name] for name in controllers)
    return Hierarchy(directory, bounds, unified=False) if directory.is_dir() else None


def _unified(mount: _Mount, own: dict[str, str]) -> Hierarchy | None:
    """The nearest group around us that hands its controllers on and that we may move within.

    Only a group without processes of its own can hand them on ("no internal processes"), so it is
    rarely our own but one above it.
    """
    inner = _shown(mount, own.get("", "/"))
    for directory in (inner, *inner.parents):
        given = _words(directory / "cgroup.subtree_control")
        movable = os.access(directory / "cgroup.procs", os.W_OK)
        if movable and given.issuperset(_NEW):
            return Hierarchy(directory, frozenset(Bound), unified=True)
        if directory == mount.point:
            break
    return None


def _shown(mount: _Mount, group: str) -> Path:
    """Where the group's directory is; the mount's own top when it lies outside what is shown."""
    path, root = PurePosixPath(group), PurePosixPath(mount.root)
    if ".." in path.parts or ".." in root.parts or not path.is_relative_to(root):
        return mount.point
    return mount.point / path.relative_to(root)


def _own_groups(proc: Path) -> dict[str, str]:
    """Our group by controller; under "" that of version 2."""
    found: dict[str, str] = {}
    for line in _lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _mounts(proc: Path) -> list[_Mount]:
    """proc(5): id, parent, device, root, mount point, options, tags, "-", type, source, options."""
    found: list[_Mount] = []
    for line in _lines(proc / "mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, point = map(_unescaped, before.split(" ")[3:5])
            found.append(_Mount(root, Path(point), kind, frozenset(options.split(","))))
    return found


def _unescaped(text: str) -> str:
    """Blanks and backslashes are written as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _words(file: Path) -> frozenset[str]:
    return frozenset(word for line in _lines(file) for word in line.split())


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
