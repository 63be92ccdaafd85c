"""Meters of disk space, which look at a run from outside.

No quota of the kernel bounds a private copy, because others use its file system too. At every tick
we ask that file system how much is free, which costs microseconds. When it shrank so much that the
limit may be near, `du` counts the copy. It also counts now and then, because others may free what
the command uses. So a command can exceed the limit only by what it writes during one count, some
0.1 s. Directories in memory that only the sandbox sees have a size of their own (tmpfs(5)); the
only question there is whether they became full.
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

from sandbox.processes.meters import deleted_bytes
from sandbox.processes.supervise import Breach, Meter
from sandbox.types import Ended, Limits, SandboxError

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


@dataclass(frozen=True, slots=True)
class FileSystem:
    """What a whole file system holds: bytes used, and the number of files and directories."""

    used: int
    entries: int

    @classmethod
    def of(cls, place: Path | int) -> Self:
        """Ask the file system that holds `place`, a path or a descriptor. Raises OSError."""
        status = os.statvfs(place)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        return cls(used, status.f_files - status.f_ffree)

    def beyond(self, other: FileSystem) -> int:
        """Return by how much this exceeds `other`, in bytes; entries count as blocks."""
        return max(self.used - other.used, (self.entries - other.entries) * _ENTRY_BYTES, 0)


class DiskMeter(Meter):
    """Compares the private copy, with other writable directories beside it, with its limit."""

    def __init__(
        self, directories: Sequence[Path], limits: Limits, processes: Callable[[], Sequence[int]]
    ) -> None:
        """The first of the `directories` is the copy. `processes` returns the pids of the run."""
        self._directories = tuple(directories)
        self._limits = limits
        self._processes = processes
        self._device = directories[0].stat().st_dev
        self._begin = self._last = FileSystem.of(directories[0])
        self._counted = 0
        self._count: _Count | None = None
        self._started = self._asked = self._next = time.monotonic()

    def enter(self, pid: int) -> None:
        """Start the first count, which runs beside the command."""
        self._ask()

    def breach(self) -> Breach | None:
        """The copy has outgrown its limit."""
        if self._count is not None:
            return self._take() if self._count.done() else None
        grown = FileSystem.of(self._directories[0]).beyond(self._last)
        if grown * _PART > self._left() or time.monotonic() > self._next:
            self._ask()
        return None

    def after(self) -> Breach | None:
        """The copy has outgrown its limit in the end, or a single file is as large as allowed."""
        now = FileSystem.of(self._directories[0])
        seconds = time.monotonic() - self._asked
        if now.beyond(self._last) > self._left() or seconds * _FASTEST > self._left():
            self.close()  # a count that began earlier is outdated
            self._ask()
        if self._count is not None and (found := self._take()):
            return found
        if (time.monotonic() - self._started) * _FASTEST < self._limits.file_size:
            return None
        return largest_file(self._directories, self._limits)

    def close(self) -> None:
        """End a count that still runs."""
        if self._count is not None:
            self._count.end()
            self._count = None

    def _left(self) -> int:
        return self._limits.workspace - self._counted

    def _ask(self) -> None:
        self._last, self._asked = FileSystem.of(self._directories[0]), time.monotonic()
        self._count = _Count(self._directories)

    def _take(self) -> Breach | None:
        """Wait for the count and compare it with the limit."""
        assert self._count is not None
        now = FileSystem.of(self._directories[0])
        size = self._count.value()
        # If `du` could not look everywhere, assume all by which the file system became fuller.
        self._counted = now.beyond(self._begin) if size is None else size
        self._counted += deleted_bytes(self._processes(), self._device)
        self._count = None
        ended = time.monotonic()
        self._next = ended + max(_PAUSE_OF_COUNTS, (ended - self._asked) * _SHARE_OF_COUNTS)
        most = self._limits.workspace // _ENTRY_BYTES
        many = now.entries - self._begin.entries > most and _entries(self._directories) > most
        if self._left() >= 0 and not many:
            return None
        limit = f"{most} files" if many else f"{self._limits.workspace} bytes"
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
        """Wait until the sandbox whose first process is `pid` has the directories; open them.

        Where we may not look into them, only the limit on a single file is noticed.
        """
        deadline = time.monotonic() + _SETUP_SECONDS
        for path, size in sorted(self._sizes.items()):
            while (held := _open_inside(pid, path, size)) is None:
                if time.monotonic() > deadline or not _is_alive(pid):
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
        """A directory was full, or a file of the largest size was written."""
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
        """Close the directories, which frees their memory."""
        while self._held:
            os.close(self._held.popitem()[1])


class _Count:
    """A `du` that runs beside us."""

    def __init__(self, directories: Sequence[Path]) -> None:
        # POSIX options only: blocks of 1024 bytes, one file system, links counted once.
        argv = ["du", "-s", "-k", "-x", "--", *map(str, directories)]
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
        """Wait for the end; return bytes, None when `du` could not look everywhere."""
        try:
            said, _ = self._process.communicate(timeout=_COUNT_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()
            return None
        # Files vanish while `du` counts. A user's `du` may also have been refused.
        if self._process.returncode != 0 and os.geteuid() != 0:
            return None
        return sum(int(line.split()[0]) for line in said.splitlines()) * 1024

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def largest_file(directories: Sequence[Path], limits: Limits) -> Breach | None:
    """Return a breach that explains a failure if a file is exactly as large as allowed."""
    size = ("-xdev", "-type", "f", "-size", f"{limits.file_size}c", "-print", "-quit")
    if not _output("find", "-H", *map(str, directories), *size):
        return None
    words = f"a file reached the limit of {limits.file_size} bytes"
    return Breach(Ended.DISK_LIMIT, words, decisive=False)


def _entries(directories: Sequence[Path]) -> int:
    """Count files and directories; very many when `du` cannot count them."""
    lines = _output("du", "-s", "-x", "--inodes", "--", *map(str, directories)).splitlines()
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


def _open_inside(pid: int, path: str, size: int) -> int | None:
    """Open a directory inside; None while it is not a file system of that size yet.

    Before the sandbox is set up, the path leads to this machine's own directory.
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
    """Whether the process lives, is no zombie, and may be inspected by us."""
    try:
        Path(f"/proc/{pid}/root").readlink()
    except OSError:
        return False
    return True
