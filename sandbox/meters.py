"""Meters of memory, CPU time, processes and disk space, which look at a run from outside.

Memory, time and processes are counted by a control group, or by an occasional look at /proc. No
quota of the kernel bounds a private copy, because others use its file system too: `du` counts it
now and then, and as soon as that file system became so much fuller that the limit may be near.
Directories in memory that only the sandbox sees have a size of their own (tmpfs(5)).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from sandbox.cgroups import Bound, ControlGroup
from sandbox.supervise import Breach, Meter
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
        if self._group.cpu_seconds() > self._limits.cpu_seconds:
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
        self._next_look = 0.0
        self._most_threads = 0

    def enter(self, pid: int) -> None:
        """Note the process that everything of the run descends from."""
        self._pid = pid

    def pids(self) -> Sequence[int]:
        """The processes of the run."""
        return descendants(self._pid) if self._pid else ()

    def breach(self) -> Breach | None:
        """The CPU time is used up."""
        if self._bounds.issuperset(Bound) or time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + _LOOK_SECONDS
        cpu_seconds, threads = measure_usage(self.pids())
        self._most_threads = max(self._most_threads, threads)
        if Bound.CPU not in self._bounds and cpu_seconds > self._limits.cpu_seconds:
            return _out_of_time(self._limits)
        return None

    def after(self) -> Breach | None:
        """As many threads as allowed were seen, so another one was very likely refused."""
        self._pid = 0  # the number may soon be another's
        if Bound.PROCESSES in self._bounds or self._most_threads < self._limits.processes:
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
        return next((breach for one in self._meters if (breach := one.breach())), None)

    def after(self) -> Breach | None:
        """Ask every meter; return a decisive breach if there is one, else the first."""
        breaches = [breach for one in self._meters if (breach := one.after())]
        return min(breaches, key=lambda breach: not breach.decisive, default=None)


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


def descendants(pid: int) -> tuple[int, ...]:
    """Return `pid` and every process below it, the top first. A sample: it may miss some."""
    pids: list[int] = []
    pending = [pid]
    while pending and len(pids) < _MOST_PROCESSES:
        current = pending.pop()
        pids.append(current)
        # A child belongs to the thread that made it.
        for thread in _entries(Path(f"/proc/{current}/task")):
            pending += map(int, _read(thread / "children").split())
    return tuple(pids)


def measure_usage(pids: Iterable[int]) -> tuple[float, int]:
    """Sum CPU seconds (with children that were waited for) and threads of these processes."""
    ticks = threads = 0
    for pid in pids:
        fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        if fields:  # fields 14 to 17: utime, stime, cutime, cstime; 20: num_threads
            ticks += sum(map(int, fields[11:15]))
            threads += int(fields[17])
    return ticks / os.sysconf("SC_CLK_TCK"), threads


def deleted_bytes(pids: Iterable[int], device: int) -> int:
    """Sum the bytes of files on `device` that these processes hold open and that have no name."""
    sizes: dict[int, int] = {}
    for pid in pids:
        for descriptor in _entries(Path(f"/proc/{pid}/fd")):
            try:
                status = descriptor.stat()
            except OSError:
                continue
            if status.st_nlink == 0 and status.st_dev == device:
                sizes[status.st_ino] = status.st_blocks * 512  # stat(2): always units of 512
    return sum(sizes.values())


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


# ------------------------------------------------------------------------------------- disk space

# An entry counts as a block at least, so that a flood of empty files is noticed.
_ENTRY_BYTES = 4096

# About what the kernel keeps for an empty file in memory (shmem_inode_info and dentry).
_MEMORY_ENTRY_BYTES = 1024

# Count again when a quarter of what is left may be used up.
_PART = 4

# Nobody fills a disk faster (bytes a second), so a short run needs no count.
_FASTEST = 4e9

# Count at least this often, but so rarely that it takes at most 2% of one processor.
_PAUSE_OF_COUNTS = 2.0
_SHARE_OF_COUNTS = 50

# So little counts as full: a write fails when its next page or block does not fit.
_FULL_BYTES = 16 * 4096

_COUNT_SECONDS = 60.0
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": os.defpath}

# Time that bwrap may take from its first process to the mounts; usually some milliseconds.
_SETUP_SECONDS = 5.0
_PAUSE_SECONDS = 0.001


class DiskMeter(Meter):
    """Compares the private copy, with other writable directories beside it, with its limit."""

    def __init__(
        self, directories: Sequence[Path], limits: Limits, processes: Callable[[], Sequence[int]]
    ) -> None:
        """The first of the `directories` is the copy. `processes` returns the pids of the run."""
        self._directories = tuple(map(str, directories))
        self._limit = limits.workspace
        self._processes = processes
        self._device = directories[0].stat().st_dev
        self._first = self._last = self._filled()
        self._left = limits.workspace
        self._counted = self._next = time.monotonic()

    def breach(self) -> Breach | None:
        """The copy has outgrown its limit."""
        if (self._filled() - self._last) * _PART > self._left or time.monotonic() > self._next:
            return self._count()
        return None

    def after(self) -> Breach | None:
        """The copy has outgrown its limit in the end."""
        seconds = time.monotonic() - self._counted
        near = self._filled() - self._last > self._left or seconds * _FASTEST > self._left
        return self._count() if near else None

    def _filled(self) -> int:
        """The bytes that the whole file system holds; entries count as blocks."""
        status = os.statvfs(self._directories[0])
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        return max(used, (status.f_files - status.f_ffree) * _ENTRY_BYTES)

    def _count(self) -> Breach | None:
        begin = time.monotonic()
        self._last = self._filled()
        # POSIX options only: blocks of 1024 bytes, one file system, links counted once.
        blocks = _disk_usage("-k", *self._directories)
        # If `du` could not look everywhere, assume all by which the file system became fuller.
        size = max(0, self._last - self._first) if blocks is None else blocks * 1024
        size += deleted_bytes(self._processes(), self._device)
        entries = _disk_usage("--inodes", *self._directories) or 0
        self._left = self._limit - size
        self._counted = end = time.monotonic()
        self._next = end + max(_PAUSE_OF_COUNTS, (end - begin) * _SHARE_OF_COUNTS)
        most = self._limit // _ENTRY_BYTES
        if self._left >= 0 and entries <= most:
            return None
        limit = f"{most} files" if entries > most else f"{self._limit} bytes"
        return Breach(Ended.DISK_LIMIT, f"the private copy outgrew its limit of {limit}")


class MemoryDiskMeter(Meter):
    """Watches directories in memory inside the sandbox, by their path there and size in bytes.

    It holds them open from the start, to inspect them when the command and its mounts are gone.
    """

    def __init__(self, sizes: Mapping[str, int], limits: Limits) -> None:
        self._sizes = sizes
        self._limits = limits
        self._held: dict[str, int] = {}
        self._full = ""

    def enter(self, pid: int) -> None:
        """Wait until the sandbox has the directories, and open those that we may look into."""
        deadline = time.monotonic() + _SETUP_SECONDS
        for path, size in sorted(self._sizes.items()):
            while (held := _open_inside(pid, path, size)) is None:
                if time.monotonic() > deadline or not _can_be_inspected(pid):
                    return
                time.sleep(_PAUSE_SECONDS)
            self._held[path] = held

    def breach(self) -> Breach | None:
        """There are too many files. That a directory is full is only noted."""
        for path, descriptor in self._held.items():
            status = os.fstatvfs(descriptor)
            if status.f_bavail * status.f_frsize < _FULL_BYTES or status.f_favail == 0:
                self._full = path
            most = self._sizes[path] // _MEMORY_ENTRY_BYTES
            if status.f_files - status.f_ffree > most:
                return Breach(Ended.DISK_LIMIT, f"made more than {most} files in {path}")
        return None

    def after(self) -> Breach | None:
        """There are too many files, or a directory was full."""
        if breach := self.breach():
            return breach
        words = f"filled {self._full} ({self._sizes.get(self._full)} bytes)"
        return Breach(Ended.DISK_LIMIT, words, decisive=False) if self._full else None

    def close(self) -> None:
        """Close the directories, which frees their memory."""
        while self._held:
            os.close(self._held.popitem()[1])


def _disk_usage(unit: str, *directories: str) -> int | None:
    """Sum what `du` counts; files may vanish meanwhile. None if it could not look everywhere."""
    try:
        done = subprocess.run(
            ["du", "-s", "-x", unit, "--", *directories],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_ENVIRONMENT,
            timeout=_COUNT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0 and os.geteuid() != 0:
        return None
    numbers = [line.split()[0] for line in done.stdout.splitlines()]
    return sum(map(int, numbers)) if numbers else None


def _open_inside(pid: int, path: str, size: int) -> int | None:
    """Open a directory inside; None while the path still leads to this machine's own."""
    try:
        descriptor = os.open(f"/proc/{pid}/root{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstatvfs(descriptor)
    sized = status.f_blocks * status.f_frsize == size
    if sized and os.fstat(descriptor).st_dev != os.stat(path).st_dev:  # noqa: PTH116
        return descriptor
    os.close(descriptor)
    return None


def _can_be_inspected(pid: int) -> bool:
    """Whether the process lives, is no zombie, and may be inspected by us."""
    try:
        Path(f"/proc/{pid}/root").readlink()
    except OSError:
        return False
    return True
