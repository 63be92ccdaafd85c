"""Measures a run from outside: memory, CPU time, processes and disk space.

Memory, time and processes are counted by a control group, if there is one. No quota bounds the
private copy, so `du` counts it when its file system became fuller, and now and then.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sandbox.cgroups import ControlGroup
from sandbox.supervise import Breach
from sandbox.types import Ended, Limits

# A program that goes on after so many refused processes is a fork bomb.
_MOST_REFUSALS = 1000

# Bounds the time that we spend on looking at a fork bomb.
_MOST_PROCESSES = 10_000


class Meter:
    """Measures one run. `directories` are all that it can write on the host, the copy first.

    `pid` is the process that everything of the run descends from, 0 if it is not known.
    """

    def __init__(self, limits: Limits, directories: Sequence[Path], group: ControlGroup) -> None:
        self._limits = limits
        self._group = group
        memory = f"all processes together used more than {limits.memory} bytes of memory"
        self._out_of_memory = Breach(Ended.MEMORY_LIMIT, memory)
        self._processes = f"reached the limit of {limits.processes} processes and threads"
        self.pid = 0
        self._disk = DiskMeter(
            directories, limits.workspace, lambda: descendants(self.pid) if self.pid else ()
        )

    def breach(self) -> Breach | None:
        """Return the decisive limit that was passed, if any."""
        if self._group.memory_kills():
            return self._out_of_memory
        if self._group.refused_processes() > _MOST_REFUSALS:
            return Breach(Ended.PROCESS_LIMIT, self._processes)
        if self._group.cpu_seconds() > self._limits.cpu_seconds:
            words = f"used {self._limits.cpu_seconds} s of CPU time"
            return Breach(Ended.CPU_LIMIT, words)
        return self._disk.breach()

    def after(self, *, killed: int = 0, refused: int = 0) -> Breach | None:
        """Return the limit that was passed or reached, if any, when all processes are dead.

        `killed` and `refused` are the kills for memory and the refused processes that the command's
        own machine counted (a container).
        """
        self.pid = 0  # the number may soon be another's
        if killed or self._group.memory_kills():
            return self._out_of_memory
        if breach := self._disk.after():
            return breach
        if refused or self._group.refused_processes():
            return Breach(Ended.PROCESS_LIMIT, self._processes, decisive=False)
        return None


# ---- processes in /proc (proc(5))


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


# ---- disk space

# An entry counts as a block at least, so that a flood of empty files is noticed.
_ENTRY_BYTES = 4096

# Count again when a quarter of what is left may be used up.
_PART = 4

# Nobody fills a disk faster (bytes a second), so a short run needs no count.
_FASTEST = 4e9

# Count at least this often, but so rarely that it takes at most 2% of one processor.
_PAUSE_OF_COUNTS = 2.0
_SHARE_OF_COUNTS = 50

_COUNT_SECONDS = 60.0
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": os.defpath}


class DiskMeter:
    """Compares the size of directories of one file system with a limit in bytes.

    `processes` returns the pids that may hold deleted files open.
    """

    def __init__(
        self, directories: Sequence[Path], limit: int, processes: Callable[[], Sequence[int]]
    ) -> None:
        self._directories = tuple(map(str, directories))
        self._limit = limit
        self._processes = processes
        self._device = directories[0].stat().st_dev
        self._first = self._last = self._filled()
        self._left = limit
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


def _disk_usage(unit: str, *directories: str) -> int | None:
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
