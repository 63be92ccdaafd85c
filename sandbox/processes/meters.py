"""Meters of memory, CPU time and processes, by control group or by /proc. See `disk` for files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.processes.cgroups import Bound, ControlGroup
from sandbox.processes.supervise import Breach, Meter
from sandbox.types import Ended, Limits

# A program that goes on after so many refused processes is a fork bomb.
_MOST_REFUSALS = 1000

# Reading /proc of some hundred processes takes milliseconds.
_LOOK_SECONDS = 0.25

# Bounds the time that we spend on looking at a fork bomb.
_MOST_PROCESSES = 10_000


class GroupMeter(Meter):
    """Memory, CPU time and number of all processes together, by their control group."""

    def __init__(self, group: ControlGroup, limits: Limits) -> None:
        self._group = group
        self._limits = limits

    def enter(self, pid: int) -> None:
        """Put the first process into the group."""
        self._group.enter(pid)

    def breach(self) -> Breach | None:
        """The kernel killed for memory, the CPU time is used up, or a fork bomb goes on."""
        if self._group.memory_kills():
            return out_of_memory(self._limits)
        used = self._group.cpu_seconds()
        if used is not None and used > self._limits.cpu_seconds:
            return _out_of_time(self._limits)
        if self._group.refused_processes() > _MOST_REFUSALS:
            return too_many_processes(self._limits, decisive=True)
        return None

    def after(self) -> Breach | None:
        """Memory stays decisive, because the kernel has killed something."""
        if self._group.memory_kills():
            return out_of_memory(self._limits)
        if self._group.refused_processes():
            return too_many_processes(self._limits, decisive=False)
        return None


class TreeMeter(Meter):
    """CPU time and threads where no control group counts them: an occasional look at /proc."""

    def __init__(self, limits: Limits, bounds: frozenset[Bound]) -> None:
        """`bounds` are what control groups see to."""
        self._limits = limits
        self._bounds = bounds
        self._pid = 0
        self._looked = 0.0
        self._most = 0

    def enter(self, pid: int) -> None:
        """Note the process that everything of the run descends from."""
        self._pid = pid

    def pids(self) -> Sequence[int]:
        """The processes of the run."""
        return descendants(self._pid) if self._pid else ()

    def breach(self) -> Breach | None:
        """The CPU time is used up."""
        now = time.monotonic()
        if self._bounds.issuperset(Bound) or now - self._looked < _LOOK_SECONDS:
            return None
        self._looked = now
        used = measure_usage(self.pids())
        self._most = max(self._most, used.threads)
        if Bound.CPU not in self._bounds and used.cpu_seconds > self._limits.cpu_seconds:
            return _out_of_time(self._limits)
        return None

    def after(self) -> Breach | None:
        """As many threads as allowed were seen, so another one was very likely refused."""
        self._pid = 0  # the number may soon be another's
        if Bound.PROCESSES in self._bounds or self._most < self._limits.processes:
            return None
        return too_many_processes(self._limits, decisive=False)


class Meters(Meter):
    """Several meters as one."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = tuple(meters)

    def enter(self, pid: int) -> None:
        """Let every meter begin."""
        for meter in self._meters:
            meter.enter(pid)

    def close(self) -> None:
        """Close every meter."""
        for meter in self._meters:
            meter.close()

    def breach(self) -> Breach | None:
        """Return the breach of the first meter that has one."""
        return next((found for one in self._meters if (found := one.breach())), None)

    def after(self) -> Breach | None:
        """Ask every meter; return a decisive breach if there is one, else the first."""
        found = [breach for one in self._meters if (breach := one.after())]
        return min(found, key=lambda breach: not breach.decisive, default=None)


def out_of_memory(limits: Limits) -> Breach:
    """The kernel killed a process for memory."""
    words = f"all processes together used more than {limits.memory} bytes of memory"
    return Breach(Ended.MEMORY_LIMIT, words)


def too_many_processes(limits: Limits, *, decisive: bool) -> Breach:
    """The kernel refused a process or thread."""
    words = f"reached the limit of {limits.processes} processes and threads"
    return Breach(Ended.PROCESS_LIMIT, words, decisive)


def _out_of_time(limits: Limits) -> Breach:
    return Breach(Ended.CPU_LIMIT, f"used {limits.cpu_seconds} s of CPU time")


# ------------------------------------------------------------------ processes in /proc (proc(5))


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """What a process tree has used. `cpu_seconds` includes descendants that were waited for."""

    cpu_seconds: float
    threads: int


def descendants(pid: int) -> tuple[int, ...]:
    """Return `pid` and every process below it, the top first. A sample: it may miss some."""
    found: list[int] = []
    pending = [pid]
    while pending and len(found) < _MOST_PROCESSES:
        current = pending.pop()
        found.append(current)
        # A child belongs to the thread that made it.
        for thread in _entries(Path(f"/proc/{current}/task")):
            pending += map(int, _read(thread / "children").split())
    return tuple(found)


def measure_usage(pids: Iterable[int]) -> TreeUsage:
    """Sum CPU time and threads of these processes; those that are gone count nothing."""
    ticks = threads = 0
    for pid in pids:
        fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        if fields:  # fields 14 to 17: utime, stime, cutime, cstime; 20: num_threads
            ticks += sum(map(int, fields[11:15]))
            threads += int(fields[17])
    return TreeUsage(ticks / os.sysconf("SC_CLK_TCK"), threads)


def deleted_bytes(pids: Iterable[int], device: int) -> int:
    """Sum the bytes of files on `device` that these processes hold open and that have no name."""
    found: dict[int, int] = {}
    for pid in pids:
        for descriptor in _entries(Path(f"/proc/{pid}/fd")):
            try:
                status = descriptor.stat()
            except OSError:
                continue
            if status.st_nlink == 0 and status.st_dev == device:
                found[status.st_ino] = status.st_blocks * 512  # stat(2): always units of 512
    return sum(found.values())


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
