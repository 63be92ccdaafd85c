"""Adopting and reaping processes whose parent died, so that a run leaves no zombie behind.

In a container whose first process reaps nothing, each run would otherwise leave one for ever.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

# SIGKILL is immediate; a zombie that another process adopted is not worth a longer wait.
_DEATH_SECONDS = 3.0
_PAUSE_SECONDS = 0.002

# Fields of proc(5) stat.
_PARENT, _SESSION = 4, 6


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants from now on. Best effort.

    It stays so: other threads may depend on it, and it changes nothing for anybody else.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(pid: int) -> None:
    """Collect the status of a dead child, if it is ours."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def reap_session(session: int) -> None:
    """Wait for those processes of `session` that we have adopted; they are about to end."""
    deadline = time.monotonic() + _DEATH_SECONDS
    while time.monotonic() < deadline:
        own = [pid for pid in _processes() if _session(pid) == session]
        adopted = [pid for pid in own if _number(pid, _PARENT) == os.getpid()]
        if not [pid for pid in adopted if not _is_gone(pid)]:
            return
        time.sleep(_PAUSE_SECONDS)


def kill_everything(session: int, marker: str) -> None:
    """Kill and reap every process of `session`, and any with `marker` in its environment.

    Goes on until there is none: each death may hand us more. A daemon that left its session and
    replaced its environment is missed. Needs `adopt_orphans` to have been called.
    """
    deadline = time.monotonic() + _DEATH_SECONDS
    dying: set[int] = set()
    while time.monotonic() < deadline:
        dying |= {pid for pid in _processes() if _kill(pid, session, marker)}
        dying = {pid for pid in dying if not _is_gone(pid)}
        if not dying:
            return
        time.sleep(_PAUSE_SECONDS)


def _processes() -> list[int]:
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid != os.getpid()]


def _kill(pid: int, session: int, marker: str) -> bool:
    """Kill it if it belongs to the run; whether it does. The pidfd excludes a reused pid."""
    if not _belongs(pid, session, marker):
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if belongs := _belongs(pid, session, marker):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)
    return belongs


def _belongs(pid: int, session: int, marker: str) -> bool:
    return _session(pid) == session or marker.encode() in _read(pid, "environ")


def _session(pid: int) -> int:
    return _number(pid, _SESSION)


def _number(pid: int, field: int) -> int:
    """A field of proc(5) stat, counted from the name, which may hold any character; or 0."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[field - 3]) if fields else 0


def _is_gone(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not Path(f"/proc/{pid}").exists()  # or its parent still has to die


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
