"""A process and its descendants, as /proc shows them (proc(5)). Samples: what is fast is missed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# A fork bomb cannot make the look at it take for ever.
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a whole tree. `cpu_seconds` includes descendants that were waited for."""

    cpu_seconds: float
    threads: int


def descendants(pid: int) -> tuple[int, ...]:
    """`pid` and every process below it, found from the top; () when it is gone."""
    found: list[int] = []
    pending = [pid]
    while pending and len(found) < _MOST:
        current = pending.pop()
        found.append(current)
        pending += _children(current)
    return tuple(found)


def usage(pids: Iterable[int]) -> Usage:
    """CPU time and threads of these processes together; those that are gone count nothing."""
    ticks = threads = 0
    for pid in pids:
        fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        if fields:  # fields 14 to 17: utime, stime, cutime, cstime; 20: num_threads
            ticks += sum(map(int, fields[11:15]))
            threads += int(fields[17])
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), threads)


def deleted_bytes(pids: Iterable[int], device: int) -> int:
    """Blocks of files of `device` that have no name any more but are held open, in bytes."""
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


def _children(pid: int) -> list[int]:
    """Of every thread: a child belongs to the thread that made it."""
    return [
        int(child)
        for task in _entries(Path(f"/proc/{pid}/task"))
        for child in _read(task / "children").split()
    ]


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
