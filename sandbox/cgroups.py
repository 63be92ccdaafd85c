"""Control groups: bounds on all processes of a run together, where this machine lets us set them.

Version 2 (Documentation/admin-guide/cgroup-v2.rst of Linux) and version 1 (cgroup-v1/memory.rst,
pids.rst, cpuacct.rst). Root may nearly always; a user only below a group that was delegated to it.
A group's name says which process made it, so that those of killed agents are found again.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.hierarchies import Bound, Hierarchy, find_hierarchies
from sandbox.types import Limits, SandboxError

_NAME = re.compile(r"patchshot-(\d+)-(\d+)-(\d+)-[0-9a-f]{8}")

# The first process of a sandbox is ours, and counted.
_OWN_PROCESSES = 1

# Processes that were killed leave their group within milliseconds.
_LEAVE_SECONDS = 3.0
_PAUSE_SECONDS = 0.002

_MICROSECONDS = 1e6
_NANOSECONDS = 1e9

# POSIX sh: "0" is whoever writes. The names come as arguments, the command after `--`.
_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One run's groups, one in each of the `hierarchies`, with the limits set. `remove` it."""

    hierarchies: tuple[Hierarchy, ...]
    name: str

    @property
    def bounds(self) -> frozenset[Bound]:
        """What is bounded (or, for CPU time, counted) for all processes together."""
        return frozenset(bound for one in self.hierarchies for bound in one.bounds)

    def enter(self, pid: int) -> None:
        """Move a process in; what it starts from then on is in too. Raises SandboxError."""
        try:
            for directory in self.directories():
                (directory / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except ProcessLookupError:
            pass  # it ended meanwhile
        except OSError as error:
            raise SandboxError(f"cannot put a process into its control group: {error}") from error

    def entry(self) -> tuple[str, ...]:
        """A command that enters and then becomes the command that follows it."""
        files = (str(directory / "cgroup.procs") for directory in self.directories())
        return ("/bin/sh", "-c", _ENTER, "sh", *files, "--")

    def cpu_seconds(self) -> float | None:
        """User and system time of all processes, ended ones included; None when not counted."""
        found = self._of(Bound.CPU)
        if found is None:
            return None
        hierarchy, directory = found
        if hierarchy.unified:
            return _count(directory / "cpu.stat", "usage_usec") / _MICROSECONDS
        return int(_read(directory / "cpuacct.usage") or 0) / _NANOSECONDS

    def memory_kills(self) -> int:
        """How many processes the kernel killed because the memory of all was used up."""
        found = self._of(Bound.MEMORY)
        if found is None:
            return 0
        hierarchy, directory = found
        file = "memory.events" if hierarchy.unified else "memory.oom_control"
        return _count(directory / file, "oom_kill")

    def refused_processes(self) -> int:
        """How many forks the kernel refused because there were too many processes."""
        found = self._of(Bound.PROCESSES)
        return 0 if found is None else _count(found[1] / "pids.events", "max")

    def remove(self) -> None:
        """Kill what is left inside and delete the groups. Safe to call twice; never raises."""
        for directory in self.directories():
            _remove(directory)

    def directories(self) -> list[Path]:
        """Where they are."""
        return [hierarchy.directory / self.name for hierarchy in self.hierarchies]

    def _of(self, bound: Bound) -> tuple[Hierarchy, Path] | None:
        for hierarchy in self.hierarchies:
            if bound in hierarchy.bounds:
                return hierarchy, hierarchy.directory / self.name
        return None


def make_group(limits: Limits, hierarchies: Sequence[Hierarchy]) -> ControlGroup:
    """A group in each hierarchy with the total limits set (memory, processes).

    Raises SandboxError when one cannot be made or set; nothing is left then.
    """
    group = ControlGroup(tuple(hierarchies), _own_name())
    try:
        for hierarchy in hierarchies:
            directory = hierarchy.directory / group.name
            directory.mkdir()
            for file, value in _settings(hierarchy, limits):
                (directory / file).write_text(value, encoding="ascii")
            for file, value in _refinements(hierarchy, limits):
                _try_to_write(directory / file, value)
    except OSError as error:
        group.remove()
        raise SandboxError(f"cannot make a control group: {error}") from error
    return group


def usable_hierarchies(found: Iterable[Hierarchy] | None = None) -> tuple[Hierarchy, ...]:
    """Those (default: of this machine) in which groups can really be made, set and entered.

    Found by trying, with a process that does nothing. Costs some milliseconds.
    """
    candidates = find_hierarchies() if found is None else tuple(found)
    return tuple(one for one in candidates if _works(one))


def sweep_groups(found: Iterable[Hierarchy] | None = None) -> tuple[Path, ...]:
    """Kill and remove what killed agents left behind; the removed groups, in path order.

    Only groups whose maker is of our own process namespace and is no more.
    """
    candidates = find_hierarchies() if found is None else tuple(found)
    left = (path for one in candidates for path in one.directory.glob("patchshot-*"))
    stale = sorted(path for path in left if _is_stale(path.name))
    for path in stale:
        _remove(path)
    return tuple(stale)


def kill_groups(directories: Iterable[Path]) -> None:
    """Kill what is inside groups of one run and delete them; one that is gone is no mistake."""
    for directory in directories:
        _remove(directory)


def _settings(hierarchy: Hierarchy, limits: Limits) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if Bound.MEMORY in hierarchy.bounds:
        file = "memory.max" if hierarchy.unified else "memory.limit_in_bytes"
        found.append((file, str(limits.memory)))
    if Bound.PROCESSES in hierarchy.bounds:
        found.append(("pids.max", str(limits.processes + _OWN_PROCESSES)))
    return found


def _refinements(hierarchy: Hierarchy, limits: Limits) -> list[tuple[str, str]]:
    """Not there on every kernel: swap is then bounded by what the machine has of it."""
    if Bound.MEMORY not in hierarchy.bounds:
        return []
    if hierarchy.unified:
        return [("memory.swap.max", "0"), ("memory.oom.group", "1")]
    return [("memory.memsw.limit_in_bytes", str(limits.memory))]


def _works(hierarchy: Hierarchy) -> bool:
    try:
        group = make_group(Limits(), (hierarchy,))
    except SandboxError:
        return False
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as idle:
            group.enter(idle.pid)
    except (OSError, SandboxError):
        return False
    finally:
        group.remove()
    return True


def _own_name() -> str:
    return f"patchshot-{_namespace()}-{os.getpid()}-{_started(os.getpid())}-{secrets.token_hex(4)}"


def _namespace() -> int:
    """The process namespace: a pid of another one means nothing here."""
    return Path("/proc/self/ns/pid").stat().st_ino


def _started(pid: int) -> int:
    """When a process began, in clock ticks (proc(5) stat, field 22); 0 when there is none."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return int(fields[19]) if fields else 0


def _is_stale(name: str) -> bool:
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) != _namespace():
        return False
    return _started(int(match[2])) != int(match[3])


def _remove(directory: Path) -> None:
    deadline = time.monotonic() + _LEAVE_SECONDS
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return  # swept at the next start
        else:
            return
        _kill(directory)
        time.sleep(_PAUSE_SECONDS)


def _kill(directory: Path) -> None:
    for line in _read(directory / "cgroup.procs").split():
        try:
            os.kill(int(line), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _try_to_write(file: Path, value: str) -> None:
    try:
        file.write_text(value, encoding="ascii")
    except OSError:
        pass


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _count(file: Path, key: str) -> int:
    """The number after `key` in a file of lines `key number`; 0 when there is none."""
    for line in _read(file).splitlines():
        name, _, number = line.partition(" ")
        if name == key:
            return int(number)
    return 0
