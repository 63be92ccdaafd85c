"""Kills every process of a run, and names what a run leaves outside itself after its maker.

The guard of a run also starts this module as a program when the agent was killed, so it imports
nothing but the standard library: python3 -I -S killing.py MARK UID GROUPS
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

# SIGKILL is immediate. A zombie that another process adopted is not worth a longer wait.
_DEATH_SECONDS = 3.0
_PAUSE_SECONDS = 0.002

# A process that was just being started may have no mark yet: look a second time.
_SECOND_LOOK_SECONDS = 0.5

# Fields of /proc/PID/stat (proc(5)).
_PARENT, _SESSION, _START_TIME = 4, 6, 22


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants from now on, if the kernel allows.

    Without it, a container whose first process reaps nothing would collect a zombie for each run.
    """
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(pid: int) -> bool:
    """Collect a dead child, if it is ours, and say whether the process is gone."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not Path(f"/proc/{pid}").exists()  # its own parent still has to reap it


def reap_session(session: int) -> None:
    """Wait for the processes of `session` that we have adopted and that are about to end."""
    deadline = time.monotonic() + _DEATH_SECONDS
    adopted = [session]
    while adopted and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        ours = [pid for pid in _processes() if _stat_field(pid, _PARENT) == os.getpid()]
        adopted = [pid for pid in ours if _stat_field(pid, _SESSION) == session and not reap(pid)]


def kill_everything(session: int, mark: str) -> None:
    """Kill and reap every process of `session`, and every one with `mark` in its environment.

    It misses a daemon that left the session and replaced its environment. Call `adopt_orphans`
    first, because each death may hand us more processes.
    """
    deadline = time.monotonic() + _DEATH_SECONDS
    dying: set[int] = set()
    while time.monotonic() < deadline:
        dying |= {pid for pid in _processes() if _kill(pid, session, mark)}
        dying = {pid for pid in dying if not reap(pid)}
        if not dying:
            return
        time.sleep(_PAUSE_SECONDS)


def remove_group(directory: Path) -> None:
    """Kill all processes in a control group and delete it. A missing group is no error."""
    deadline = time.monotonic() + _DEATH_SECONDS
    while time.monotonic() < deadline:  # what stays is removed by the sweep of the next start
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            for line in _read(directory / "cgroup.procs").split():
                try:
                    os.kill(int(line), signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue
            time.sleep(_PAUSE_SECONDS)
        else:
            return


# ---- the names of control groups and containers say which process made them

_OWNED = re.compile(r"patchshot-(\d+-[0-9a-f]{8})-(\d+)-(\d+)-[0-9a-f]{8}")


def new_name() -> str:
    """Make a name that says which process of which boot and PID namespace owns a thing."""
    pid = os.getpid()
    started = _stat_field(pid, _START_TIME)
    return f"patchshot-{_pid_namespace()}-{pid}-{started}-{secrets.token_hex(4)}"


def is_abandoned(name: str) -> bool:
    """Whether the owner in a name has certainly ended: pids of other namespaces mean nothing."""
    match = _OWNED.fullmatch(name)
    if match is None or match[1] != _pid_namespace():
        return False
    return _stat_field(int(match[2]), _START_TIME) != int(match[3])


def _pid_namespace() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    return f"{Path('/proc/self/ns/pid').stat().st_ino}-{boot[:8]}"


# ---- the program


def main(mark: str, uid: str, groups: str) -> None:
    """Kill all of a run whose agent is dead.

    `mark` is in the environment of its processes, `uid` is the one that only they have or "",
    `groups` are directories of control groups joined by ":".
    """
    for pause in (0.0, _SECOND_LOOK_SECONDS):
        time.sleep(pause)
        for directory in filter(None, groups.split(":")):
            remove_group(Path(directory))
        kill_everything(-1, mark)
        if uid:
            _kill_user(int(uid))


def _kill_user(uid: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _processes() -> list[int]:
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid != os.getpid()]


def _kill(pid: int, session: int, mark: str) -> bool:
    """Kill a process if it belongs to the run, and say whether it does."""
    try:
        descriptor = os.pidfd_open(pid)  # excludes another process with a reused pid
    except OSError:
        return False
    try:
        variables = _read(Path(f"/proc/{pid}/environ"))
        if _stat_field(pid, _SESSION) != session and mark not in variables:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)
    return True


def _stat_field(pid: int, field: int) -> int:
    """Return a field of /proc/PID/stat, 0 without such a process.

    The name, the second field, may hold any character, so the fields after it are counted.
    """
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return int(fields[field - 3]) if fields else 0


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError:
        return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
