"""The reduced backend for machines that forbid namespaces: Landlock, only when asked for by name.

Commands give up files (landlock(7)) and sockets. They still see processes, IPC objects and that
files exist. As root, every user must be able to reach what the command needs.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import sys
import threading
from pathlib import Path
from subprocess import Popen

from sandbox.choose import home_directories, probe_by_running
from sandbox.host import Bind, find_spare_uid, last_line, read_only_mounts, system_mounts
from sandbox.in_place import MARKER, InPlaceSetup, run_in_place
from sandbox.landlock_launch import CREATE_RULESET, LOCKED
from sandbox.seccomp import filter_program
from sandbox.supervise import start_process
from sandbox.types import Command, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

# The flag of landlock_create_ruleset that asks for the version.
_VERSION = 1

# Older versions do not handle truncate(2), so a command could empty any file of the user.
_OLDEST_ABI = 3

_LAUNCHER = Path(__file__).with_name("landlock_launch.py")

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# The trial runs the system's interpreter, because any uid can run it.
_SYSTEM_PYTHON = Path("/usr/bin/python3")

# The mode of directories that the uid of the command must pass and must not list.
_PASSABLE = 0o711


class LandlockSandbox:
    """Runs commands under Landlock, a filter of system calls, limits and, as root, another uid.

    `Workspace.mount` means nothing. `homes` are never shown as a whole (default: the user's).
    """

    name = "landlock"
    foreign_root = False

    def __init__(self, *, homes: tuple[Path, ...] | None = None) -> None:
        self._homes = home_directories() if homes is None else homes

    def probe(self) -> Probe:
        """Try what must be impossible; available when all of it was. Never raises."""
        return probe_by_running(self, homes=self._homes, python=_SYSTEM_PYTHON)

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run the command locked in; see the protocol `Sandbox`."""
        if command.network:
            raise SandboxError("Landlock cannot give a command the network; use bwrap for that")
        abi = _usable_abi()
        filtered = filter_program(sockets=False)
        if filtered is None:
            raise SandboxError("no filter of system calls for this processor; use bwrap instead")
        uid = workspace.owner if workspace.owner is not None else find_spare_uid()
        if uid is None and os.geteuid() == 0:
            raise SandboxError("this user namespace has no uid to drop to; map more than one")
        shown = [
            mount.source
            for mount in read_only_mounts(command.read_only, homes=self._homes)
            if isinstance(mount, Bind)
        ]

        def start(setup: InPlaceSetup) -> Popen[bytes]:
            if uid is not None:
                _open_directories(setup)
            document = {
                "abi": abi,
                "argv": setup.argv,
                "cwd": str(setup.cwd),
                "environment": dict(setup.environment),
                "rules": _rules(setup, shown),
                "seccomp": list(filtered),
                "uid": uid,
            }
            return _launch(json.dumps(document).encode("ascii"), setup)

        return run_in_place(command, workspace, cancel, start, owner=uid)


def landlock_abi() -> int:
    """Return the version of Landlock that this kernel has switched on; 0 when there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(CREATE_RULESET, None, 0, _VERSION)))


def _usable_abi() -> int:
    abi = landlock_abi()
    if abi < _OLDEST_ABI:
        has = f"version {abi}" if abi else "none"
        raise SandboxError(
            f"Landlock {_OLDEST_ABI} is needed and this kernel has {has}: Linux 6.2 or later, with "
            "landlock among the modules of the boot parameter lsm= (/sys/kernel/security/lsm)"
        )
    return abi


def _rules(setup: InPlaceSetup, shown: list[Path]) -> list[tuple[str, str]]:
    """Return paths with what is allowed below them ("read", "write" or "device").

    /proc is among them, because interpreters read about themselves there. It lists processes
    outside, but the kernel lets nobody look into a process that is not locked in the same way.
    """
    system = [mount.source for mount in system_mounts() if isinstance(mount, Bind)]
    system += sorted(Path("/etc").glob("python3*"))  # Debian's sitecustomize.py is a link to there
    rules = {(str(path), "read") for path in (*system, *shown, Path("/proc"))}
    rules |= {(path, "device") for path in _DEVICES if Path(path).exists()}
    rules |= {(str(path), "write") for path in (setup.run.workspace.path, setup.run.temporary)}
    if setup.run.pipe is not None:
        rules.add((str(setup.run.report_directory), "device"))
    return sorted(rules)


def _open_directories(setup: InPlaceSetup) -> None:
    """Let another uid pass our private directory to its own ones, and nothing else there."""
    tree = setup.run.workspace.path
    for parent in tree.parent.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            raise SandboxError(
                f"{parent} is closed to other users, and as root Landlock needs one; set TMPDIR to "
                "a folder that all can pass"
            )
    tree.chmod(0o700)
    for passage in (tree.parent, setup.run.scratch):
        passage.chmod(_PASSABLE)


def _launch(document: bytes, setup: InPlaceSetup) -> Popen[bytes]:
    reader, writer = os.pipe()
    configuration = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    try:
        os.write(configuration, document)
        os.lseek(configuration, 0, os.SEEK_SET)
        python = (sys.executable, "-I", "-S", str(_LAUNCHER), str(configuration), str(writer))
        process = start_process(
            [*setup.group.entry(), *python],
            cwd=Path("/"),
            environment={"LC_ALL": "C.UTF-8", MARKER: setup.environment[MARKER]},
            pass_fds=(configuration, writer),
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(configuration)
        os.close(writer)
    _check_start(process, reader)
    return process


def _check_start(process: Popen[bytes], reader: int) -> None:
    with os.fdopen(reader, "rb") as file:
        words = file.read(4096)
    if words != LOCKED:
        process.kill()
        _, errors = process.communicate()
        reason = last_line(words.removeprefix(LOCKED) or errors)
        raise SandboxError(f"Landlock cannot be used here: {reason}")
