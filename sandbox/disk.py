"""How much of the disk a run has used, measured from outside while it goes on.

A private copy lies on a file system that others use, too, so no quota of the kernel bounds it. The
file system's own count of what is free is asked at every tick, which costs microseconds; when it
shrank by so much that the limit may be near (and now and then in any case: others may have freed
what the command has used), `du` counts the copy. So the limit holds but for what is written in the
time of one count (some 0.1 s). Places in memory that only the sandbox sees have a size of their own
(tmpfs(5)); for them, the only question is whether they got full.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.supervise import Breach
from sandbox.tree import deleted_bytes
from sandbox.types import Ended, Limits, SandboxError

# An entry costs a block at least, so that a flood of empty files is counted, too.
_ENTRY = 4096

# What the kernel keeps for a file in memory without content (shmem_inode_info and dentry), about.
_IN_MEMORY_ENTRY = 1024

# Count again when this part of what is left may be used up: a handful of counts on the way.
_PART = 4

# Nobody fills a disk faster (bytes a second): what a run cannot have written needs no count.
_FASTEST = 4e9

# In any case after so long, and so rarely that counting takes 2% of one processor at most.
_PAUSE_OF_COUNTS = 2.0
_SHARE_OF_COUNTS = 50

# As good as nothing: a program is refused when its next page or block does not fit.
_NOTHING = 16 * 4096

_COUNT_SECONDS = 60.0
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": os.defpath}

# How long bwrap may take from its first process to the mounts; it is some milliseconds.
_SETUP_SECONDS = 5.0
_PAUSE_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class FileSystem:
    """What is used of a whole file system."""

    used: int  # bytes
    entries: int

    @classmethod
    def of(cls, place: Path | int) -> Self:
        """The one that holds `place`, a path or a descriptor. Raises OSError."""
        status = os.statvfs(place)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        return cls(used, status.f_files - status.f_ffree)

    def beyond(self, other: FileSystem) -> int:
        """By how much this is more than `other`, in bytes; entries as blocks."""
        return max(self.used - other.used, (self.entries - other.entries) * _ENTRY, 0)


class DiskMeter:
    """The private copy (and other writable `places` of its file system) against its limit."""

    def __init__(
        self, places: Sequence[Path], limits: Limits, processes: Callable[[], Sequence[int]]
    ) -> None:
        """`places`: the copy first. `processes`: the pids of the run, while it goes on."""
        self._places = tuple(places)
        self._limits = limits
        self._processes = processes
        self._device = places[0].stat().st_dev
        self._begin = self._last = FileSystem.of(places[0])
        self._counted = 0
        self._count: _Count | None = None
        self._started = self._asked = self._next = time.monotonic()

    def enter(self, pid: int) -> None:
        """The first count goes on beside the command."""
        self._ask()

    def breach(self) -> Breach | None:
        """Whether the copy has grown beyond its limit."""
        if self._count is not None:
            return self._take() if self._count.done() else None
        grown = FileSystem.of(self._places[0]).beyond(self._last)
        if grown * _PART > self._left() or time.monotonic() > self._next:
            self._ask()
        return None

    def after(self) -> Breach | None:
        """The last word on the size, and whether a single file got as large as it may."""
        now = FileSystem.of(self._places[0])
        seconds = time.monotonic() - self._asked
        if now.beyond(self._last) > self._left() or seconds * _FASTEST > self._left():
            self.close()  # a count that began earlier is of no use
            self._ask()
        if self._count is not None and (found := self._take()):
            return found
        if (time.monotonic() - self._started) * _FASTEST < self._limits.file_size:
            return None
        return largest_file(self._places, self._limits)

    def close(self) -> None:
        """End a count that still goes on."""
        if self._count is not None:
            self._count.end()
            self._count = None

    def _left(self) -> int:
        return self._limits.workspace - self._counted

    def _ask(self) -> None:
        self._last, self._asked = FileSystem.of(self._places[0]), time.monotonic()
        self._count = _Count(self._places)

    def _take(self) -> Breach | None:
        """Wait for the count and judge by it."""
        assert self._count is not None
        now = FileSystem.of(self._places[0])
        size = self._count.value()
        # What it could not look into is taken for all that the file system has got fuller by.
        self._counted = now.beyond(self._begin) if size is None else size
        self._counted += deleted_bytes(self._processes(), self._device)
        self._count = None
        ended = time.monotonic()
        self._next = ended + max(_PAUSE_OF_COUNTS, (ended - self._asked) * _SHARE_OF_COUNTS)
        most = self._limits.workspace // _ENTRY
        many = now.entries - self._begin.entries > most and _entries(self._places) > most
        if self._left() >= 0 and not many:
            return None
        limit = f"{most} files" if many else f"{self._limits.workspace} bytes"
        return Breach(Ended.DISK_LIMIT, f"the private copy outgrew its limit of {limit}")


class MemoryDiskMeter:
    """Places in memory inside the sandbox, by their path there and their size in bytes.

    They are held open from the start, so that they can still be looked at when the command and its
    mounts are gone.
    """

    def __init__(self, sizes: Mapping[str, int], limits: Limits) -> None:
        self._sizes = sizes
        self._limits = limits
        self._held: dict[str, int] = {}
        self._full = ""

    def enter(self, pid: int) -> None:
        """Wait until the sandbox whose first process is `pid` has the places, and hold them.

        Where they are not ours to see, only the size of a single file is noticed.
        """
        deadline = time.monotonic() + _SETUP_SECONDS
        for path, size in sorted(self._sizes.items()):
            while (held := _held(pid, path, size)) is None:
                if time.monotonic() > deadline or not _is_alive(pid):
                    return
                time.sleep(_PAUSE_SECONDS)
            self._held[path] = held

    def breach(self) -> Breach | None:
        """Being full is noted; the number of files has no limit of its own, and is the end."""
        for path, descriptor in self._held.items():
            status = os.fstatvfs(descriptor)
            if status.f_bavail * status.f_frsize < _NOTHING or status.f_favail == 0:
                self._full = path
            most = self._sizes[path] // _IN_MEMORY_ENTRY
            if status.f_files - status.f_ffree > most:
                return Breach(Ended.DISK_LIMIT, f"made more than {most} files in {path}")
        return None

    def after(self) -> Breach | None:
        """A place that was full explains a failure; so does a file of the largest size."""
        if found := self.breach():
            return found
        if self._full:
            words = f"filled {self._full} ({self._sizes[self._full]} bytes)"
            return Breach(Ended.DISK_LIMIT, words, decisive=False)
        large = [
            Path(f"/proc/{os.getpid()}/fd/{descriptor}")
            for descriptor in self._held.values()
            if FileSystem.of(descriptor).used >= self._limits.file_size
        ]
        return largest_file(large, self._limits) if large else None

    def close(self) -> None:
        """Let go of the places: their memory is free then."""
        while self._held:
            os.close(self._held.popitem()[1])


class _Count:
    """A `du` that goes on beside us."""

    def __init__(self, places: Sequence[Path]) -> None:
        # POSIX options only: blocks of 1024 bytes, one file system, links counted once.
        argv = ["du", "-s", "-k", "-x", "--", *map(str, places)]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_ENVIRONMENT,
                text=True,
            )
        except OSError as error:
            raise SandboxError(f"cannot start du: {error}; install coreutils") from error

    def done(self) -> bool:
        return self._process.poll() is not None

    def value(self) -> int | None:
        """Bytes; None when not everything could be looked into. Waits for the end."""
        try:
            said, _ = self._process.communicate(timeout=_COUNT_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()
            return None
        # Files vanish while they are counted; but a user's `du` may also have met closed doors.
        if self._process.returncode != 0 and os.geteuid() != 0:
            return None
        return sum(int(line.split()[0]) for line in said.splitlines()) * 1024

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def largest_file(places: Sequence[Path], limits: Limits) -> Breach | None:
    """Explains a failure when some file is exactly as large as one may be."""
    size = ("-xdev", "-type", "f", "-size", f"{limits.file_size}c", "-print", "-quit")
    if not _output("find", "-H", *map(str, places), *size):
        return None
    words = f"a file reached the limit of {limits.file_size} bytes"
    return Breach(Ended.DISK_LIMIT, words, decisive=False)


def _entries(places: Sequence[Path]) -> int:
    """How many files and directories there are; very many when `du` cannot count them."""
    lines = _output("du", "-s", "-x", "--inodes", "--", *map(str, places)).splitlines()
    return sum(int(line.split()[0]) for line in lines) if lines else sys.maxsize


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_ENVIRONMENT,
            timeout=_COUNT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", errors="replace")


def _held(pid: int, path: str, size: int) -> int | None:
    """A descriptor of the place, or None while it is not the file system of that size yet.

    Before the sandbox is set up, its path leads to this machine's own.
    """
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


def _is_alive(pid: int) -> bool:
    """Whether the process is there, no zombie, and ours to look into."""
    try:
        Path(f"/proc/{pid}/root").readlink()
    except OSError:
        return False
    return True
