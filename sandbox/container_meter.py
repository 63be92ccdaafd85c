"""Watching a container's control group: live from the host, and by what its script said in the end.

From the host nothing inside can touch the numbers, but the group is gone with the container; what
the script counts in its last moment comes instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sandbox.cgroups import ControlGroup
from sandbox.container_launch import Status
from sandbox.hierarchies import Bound, Hierarchy
from sandbox.meters import GroupMeter, out_of_memory, too_many_processes
from sandbox.supervise import Breach
from sandbox.types import Limits

_PROC = Path("/proc")
_ROOT = Path("/sys/fs/cgroup")

# Controller ("" is version 2), what is read of it, and whether it is version 2.
_KINDS = (
    ("memory", frozenset({Bound.MEMORY}), False),
    ("pids", frozenset({Bound.PROCESSES}), False),
    ("cpuacct", frozenset({Bound.CPU}), False),
    ("", frozenset(Bound), True),
)


class ContainerMeter:
    """See `sandbox.meters.InsideMeter`. `status` gives what the container's script said."""

    def __init__(self, limits: Limits, status: Callable[[], Status]) -> None:
        self._limits = limits
        self._status = status
        self._group: ControlGroup | None = None
        self._live: GroupMeter | None = None
        self._refused = 0

    @property
    def bounds(self) -> frozenset[Bound]:
        """What is seen from here of all processes together."""
        return frozenset() if self._group is None else self._group.bounds

    def enter(self, pid: int) -> None:
        """Find the group of the container's first process, which the engine has put there."""
        self._group = group_of(pid)
        self._live = None if self._group is None else GroupMeter(self._group, self._limits)

    def close(self) -> None:
        """Nothing to let go of: the group is the engine's."""

    def breach(self) -> Breach | None:
        """What the group's own counters say while the container runs."""
        if self._group is None or self._live is None:
            return None
        self._refused = self._group.refused_processes()
        return self._live.breach()

    def after(self) -> Breach | None:
        """What the script found in the same counters when the command had ended.

        Where it was killed before it could look, what was last seen from here.
        """
        status = self._status()
        if status.killed:
            return out_of_memory(self._limits)
        if status.refused or self._refused:
            return too_many_processes(self._limits, decisive=False)
        return None


def group_of(pid: int, proc: Path = _PROC, root: Path = _ROOT) -> ControlGroup | None:
    """The control group that a process is in, to be read and never changed.

    None where it is our own, or the groups are not where every distribution mounts them.
    """
    theirs, ours = _paths(proc / str(pid)), _paths(proc / "self")
    found = [
        (Hierarchy(directory.parent, bounds, unified), directory.name)
        for key, bounds, unified in _KINDS
        if key in theirs and theirs[key] != ours.get(key)
        if (directory := _directory(root, key, theirs[key])).is_dir()
    ]
    names = {name for _, name in found}
    if len(names) != 1:
        return None
    return ControlGroup(tuple(hierarchy for hierarchy, _ in found), names.pop())


def _directory(root: Path, controller: str, path: str) -> Path:
    relative = path.lstrip("/")
    return root / controller / relative if ".." not in path.split("/") else root / "none"


def _paths(process: Path) -> dict[str, str]:
    """Group by controller; under "" that of version 2."""
    try:
        lines = (process / "cgroup").read_text("utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return {}
    fields = (line.split(":", 2) for line in lines)
    return {name: path for _, names, path in fields for name in names.split(",")}
