"""The reduced backend for machines that forbid namespaces: Landlock, only when asked for by name.

Landlock (landlock(7), Linux 6.2 or later) lets a process give up files for itself and its children.
Here: the system is read-only, the user's files cannot be read, the workspace and a temporary folder
can be written, and no socket can be made. What namespaces would add is missing, and `probe` says
so: other processes are visible, the host's IPC objects too, loopback servers and semaphores of
multiprocessing cannot be made, files can be seen to exist and, where we are not root, have their
modes changed. As root, what the command needs must be within reach of every user.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox import identity, seccomp
from sandbox.in_place import MARKER, InPlace, Place, popen
from sandbox.landlock_launch import LOCKED
from sandbox.landlock_probe import REQUIRED, probe_landlock
from sandbox.mounts import Bind, read_only_mounts, system_mounts
from sandbox.probing import own_homes, unavailable
from sandbox.rlimits import wrapper
from sandbox.types import Command, Probe, RunResult, Sandbox, SandboxError
from sandbox.workspace import Workspace

__all__ = ["REQUIRED", "LandlockSandbox", "landlock_abi", "why_shut_out"]

_CREATE_RULESET, _VERSION = (
    444,
    1,
)  # landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)

# Before it, truncate(2) was not handled: any file of the user could be emptied.
_OLDEST_ABI = 3

_LAUNCHER = Path(__file__).with_name("landlock_launch.py")

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# For the trial: of the system, where it is, for any uid can run that.
_SYSTEM_PYTHON, _OWN_PYTHON = Path("/usr/bin/python3"), Path(sys.executable)

# The uid of the command has to pass through, and nothing more.
_PASSABLE = 0o711

# What a launcher has to say is one line.
_MOST_WORDS = 4096


class LandlockSandbox:
    """Runs commands under Landlock, a filter of system calls, limits and, as root, another uid.

    The workspace is used where it lies (`workspace.path`); `mount` means nothing. `homes` are
    directories never shown as a whole (default: the home of the user).
    """

    def __init__(self, *, homes: tuple[Path, ...] | None = None) -> None:
        self._homes = own_homes() if homes is None else homes
        self._runs = InPlace()

    @property
    def name(self) -> str:
        """As it is called in reports and settings."""
        return "landlock"

    @property
    def foreign_root(self) -> bool:
        """Never: commands see this machine's interpreters."""
        return False

    def probe(self) -> Probe:
        """Try what must not be possible; available when nothing of it was. Never raises.

        Never `isolated`: see the module.
        """
        try:
            return probe_landlock(self, _SYSTEM_PYTHON if _SYSTEM_PYTHON.exists() else _OWN_PYTHON)
        except SandboxError as error:
            return unavailable(self.name, str(error))

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run it locked in; see the protocol `Sandbox`."""
        abi = _usable_abi()
        filtered = seccomp.program(sockets=False)
        if filtered is None:
            raise SandboxError("no filter of system calls for this processor; use bwrap instead")
        uid = workspace.owner if workspace.owner is not None else identity.spare_uid()
        if uid is None and os.geteuid() == 0:
            raise SandboxError("this user namespace has no uid to drop to; map more than one")
        if uid is not None:
            workspace.give_to(uid)
        shown = read_only_mounts(command.read_only, homes=self._homes)

        def start(place: Place) -> subprocess.Popen[bytes]:
            if uid is not None:
                _let_in(uid, workspace, place)
            limits = wrapper(command.limits, shared_user=uid is None, bounds=place.group.bounds)
            document = {
                "abi": abi,
                "argv": [*limits, *command.argv],
                "cwd": str(place.cwd),
                "environment": dict(place.environment),
                "rules": _rules(workspace, place, [m for m in shown if isinstance(m, Bind)]),
                "seccomp": list(filtered),
                "uid": uid,
            }
            return _launched(json.dumps(document).encode("ascii"), place)

        return self._runs.run(command, workspace, cancel, start, owner=uid)


def landlock_abi() -> int:
    """The version of Landlock that this kernel has switched on; 0 when there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _VERSION)))


def why_shut_out(sandbox: Sandbox, needed: Iterable[Path]) -> str:
    """Why a command that needs these absolute paths cannot start, and what to do; "" if it may.

    As root the command has another uid, which passes no folder that is ours alone.
    """
    if sandbox.name != "landlock" or os.geteuid() != 0:
        return ""
    for place in (way for path in needed for way in (path, path.resolve())):
        for folder in (*reversed(place.parents), place):
            if folder.is_dir() and not folder.stat().st_mode & stat.S_IXOTH:
                return (
                    f"{folder} is closed to other users, and as root Landlock needs one: name an "
                    f"interpreter elsewhere with --python, or let others pass: chmod o+x {folder}"
                )
    return ""


def _usable_abi() -> int:
    abi = landlock_abi()
    if abi < _OLDEST_ABI:
        has = f"version {abi}" if abi else "none"
        raise SandboxError(
            f"Landlock {_OLDEST_ABI} is needed and this kernel has {has}: Linux 6.2 or later, with "
            "landlock among the modules of the boot parameter lsm= (/sys/kernel/security/lsm)"
        )
    return abi


def _rules(workspace: Workspace, place: Place, shown: Sequence[Bind]) -> list[tuple[str, str]]:
    """Paths with what is allowed below them, for the launcher.

    /proc, because interpreters read about themselves there: processes outside are listed, but the
    kernel lets nobody look into one that is not locked in the same way.
    """
    system = [mount.source for mount in system_mounts() if isinstance(mount, Bind)]
    system += sorted(Path("/etc").glob("python3*"))  # Debian's sitecustomize.py is a link to there
    found = {(str(path), "read") for path in (*system, *(m.source for m in shown), Path("/proc"))}
    found |= {(path, "device") for path in _DEVICES if Path(path).exists()}
    found |= {(str(path), "write") for path in (workspace.path, place.temporary)}
    if place.channels is not None:
        found.add((str(place.channels.report_directory), "device"))
        found.add((str(place.channels.junit_directory), "write"))
    return sorted(found)


def _let_in(uid: int, workspace: Workspace, place: Place) -> None:
    """Let another uid reach its own places through our private directory; all else stays shut."""
    for parent in workspace.path.parent.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            raise SandboxError(
                f"{parent} is closed to other users, and as root Landlock needs one; set TMPDIR to "
                "a folder that all can pass"
            )
    workspace.path.chmod(0o700)
    for passage in (workspace.path.parent, place.temporary.parent):
        passage.chmod(_PASSABLE)
    for own in (place.temporary, place.temporary / "home"):
        os.chown(own, uid, uid)


def _launched(document: bytes, place: Place) -> subprocess.Popen[bytes]:
    """The command, locked in. Raises SandboxError with the launcher's reason when it could not."""
    said, says = os.pipe()
    configuration = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    try:
        os.write(configuration, document)
        os.lseek(configuration, 0, os.SEEK_SET)
        python = (sys.executable, "-I", "-S", str(_LAUNCHER), str(configuration), str(says))
        process = popen(
            [*place.group.entry(), *python],
            cwd=Path("/"),
            environment={"LC_ALL": "C.UTF-8", MARKER: place.environment[MARKER]},
            pass_fds=(configuration, says),
        )
    except BaseException:
        os.close(said)
        raise
    finally:
        os.close(configuration)
        os.close(says)
    _check_start(process, said)
    return process


def _check_start(process: subprocess.Popen[bytes], said: int) -> None:
    """Wait until the launcher has become the command, which closes its end of the pipe."""
    with os.fdopen(said, "rb") as file:
        words = file.read(_MOST_WORDS)
    if words != LOCKED:
        process.kill()
        _, errors = process.communicate()
        lines = (words.removeprefix(LOCKED) or errors).decode("utf-8", "replace").strip()
        raise SandboxError(f"Landlock cannot be used here: {lines.rpartition(chr(10))[2]}")
