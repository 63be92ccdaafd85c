"""The reduced backend for machines that forbid namespaces: Landlock, only when asked for by name.

Landlock (landlock(7), Linux 6.2 or later) lets a process give up files for itself and its children.
Here the system is read-only, the user's files cannot be read, the workspace and a temporary folder
can be written, and no socket can be made. What namespaces would add is missing, and `probe` says
so: other processes and the host's IPC objects are visible, commands cannot make loopback servers or
semaphores of multiprocessing, and they can see that files exist and, where we are not root, change
their modes. As root, every user must be able to reach what the command needs.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.choose import (
    PROBE_LIMITS,
    home_directories,
    probe_limits,
    run_trial,
    unavailable_probe,
)
from sandbox.files import make_private
from sandbox.host import Bind, find_interpreter, find_spare_uid, read_only_mounts, system_mounts
from sandbox.in_place import MARKER, InPlaceSetup, run_in_place, start_program
from sandbox.landlock_launch import LOCKED
from sandbox.runs import prlimit_command
from sandbox.seccomp import filter_program
from sandbox.types import Command, Probe, RunResult, Sandbox, SandboxError
from sandbox.workspace import Workspace

# Guarantees that a run under Landlock must have. This backend lacks the others.
REQUIRED = (
    "no-network",
    "no-privileges",
    "private-environment",
    "private-home",
    "read-only-kernel-settings",
    "read-only-root",
    "syscall-filter",
    "usable",
)

_CANARY = "canary"

# Arguments: a private file of ours and our pid. Prints what could be done.
_SCRIPT = r"""
import ctypes, json, os, socket, sys
canary, outside = sys.argv[1], int(sys.argv[2])
did = []
def attempt(name, action):
    try:
        action()
    except OSError:
        return
    did.append(name)
def write(path):
    with open(path, "a"):
        pass
def connectable(family):
    socket.socket(family, socket.SOCK_STREAM).close()
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, 40):
    attempt("socket", lambda: connectable(family))
attempt("read-home", lambda: open(canary).close())
attempt("list-home", lambda: os.listdir(os.path.dirname(canary)))
attempt("write-home", lambda: write(canary))
attempt("change-mode", lambda: os.chmod(canary, 0o640))
attempt("signal", lambda: os.kill(outside, 0))
attempt("read-environment", lambda: open(f"/proc/{outside}/environ").read(1))
for place in ("/", "/usr", "/etc", "/dev", "/tmp"):
    attempt("write-root", lambda: write(os.path.join(place, "sandbox-probe")))
attempt("write-kernel", lambda: write("/proc/sys/kernel/core_pattern"))
def nest():
    if ctypes.CDLL(None).unshare(0x10000000) != 0:
        raise OSError
attempt("nest", nest)
def use():
    for place in (".", os.environ["TMPDIR"], os.environ["HOME"]):
        write(os.path.join(place, "probe"))
attempt("use", use)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
names = ("net", "pid", "mnt", "ipc", "uts")
print(json.dumps({
    "did": did,
    "status": {name: value.strip() for name, value in status.items()},
    "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in names},
    "uid": os.getuid(),
}))
"""


def probe_landlock(sandbox: Sandbox, python: Path) -> Probe:
    """Run the trial in `sandbox` with the interpreter `python`. Raises SandboxError."""
    found = find_interpreter(python)
    outside = make_private()
    try:
        canary = outside.path / _CANARY
        canary.touch(mode=0o600)
        options = ("-I", "-S", "-c", _SCRIPT, str(canary), str(os.getpid()))
        command = Command(
            (str(found.executable), *options), limits=PROBE_LIMITS, read_only=found.paths
        )
        result = run_trial(sandbox, command)
    finally:
        outside.remove()
    try:
        facts = json.loads(result.stdout)
        guarantees = {**judge_facts(facts), **probe_limits(sandbox)}
    except (ValueError, LookupError, TypeError) as error:
        said = result.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise SandboxError(f"a trial run failed: {' '.join(said[-1:]) or result.ended}") from error
    missing = [name for name in REQUIRED if not guarantees[name]]
    problem = f"{sandbox.name} gives no {', '.join(missing)} here; use bwrap" if missing else ""
    return Probe(sandbox.name, not missing, False, dict(sorted(guarantees.items())), problem)


def judge_facts(facts: Mapping[str, Any]) -> Mapping[str, bool]:
    """Derive guarantees by name from the trial's facts. Raises LookupError or TypeError."""
    did, status, inside = frozenset(facts["did"]), facts["status"], facts["namespaces"]
    own = {name: inside[name] != str(Path(f"/proc/self/ns/{name}").readlink()) for name in inside}
    powerless = all(set(status[name]) == {"0"} for name in ("CapEff", "CapPrm", "CapInh"))
    return {
        "ipc-namespace": own["ipc"] and own["uts"],
        "no-foreign-signals": "signal" not in did,
        "no-nested-namespaces": "nest" not in did,
        "no-network": "socket" not in did,
        "no-privileges": powerless and status["NoNewPrivs"] == "1" and facts["uid"] != 0,
        "pid-namespace": own["pid"],
        "private-environment": "read-environment" not in did,
        "private-home": did.isdisjoint({"read-home", "list-home", "write-home"}),
        "read-only-kernel-settings": "write-kernel" not in did,
        "read-only-modes": "change-mode" not in did,
        "read-only-root": "write-root" not in did,
        "syscall-filter": status["Seccomp"] == "2",
        "usable": "use" in did,
    }


# The system call landlock_create_ruleset and its flag that asks for the version.
_CREATE_RULESET, _VERSION = 444, 1

# Older versions do not handle truncate(2), so a command could empty any file of the user.
_OLDEST_ABI = 3

_LAUNCHER = Path(__file__).with_name("landlock_launch.py")

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# The trial prefers the system's interpreter, because any uid can run it.
_SYSTEM_PYTHON, _OWN_PYTHON = Path("/usr/bin/python3"), Path(sys.executable)

# The mode of directories that the uid of the command must pass and must not list.
_PASSABLE = 0o711

# The launcher says one line.
_MOST_BYTES = 4096


class LandlockSandbox:
    """Runs commands under Landlock, a filter of system calls, limits and, as root, another uid.

    `Workspace.mount` means nothing. `homes` are directories never shown as a whole (default: the
    home of the user).
    """

    name = "landlock"
    foreign_root = False

    def __init__(self, *, homes: tuple[Path, ...] | None = None) -> None:
        self._homes = home_directories() if homes is None else homes

    def probe(self) -> Probe:
        """Try what must be impossible; available when all of it was. Never raises.

        The result is never `isolated`: see the module.
        """
        try:
            return probe_landlock(self, _SYSTEM_PYTHON if _SYSTEM_PYTHON.exists() else _OWN_PYTHON)
        except SandboxError as error:
            return unavailable_probe(self.name, str(error))

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
        if uid is not None:
            workspace.give_to(uid)
        shown = read_only_mounts(command.read_only, homes=self._homes)

        def start(setup: InPlaceSetup) -> subprocess.Popen[bytes]:
            if uid is not None:
                _open_directories(uid, setup)
            limits = prlimit_command(
                command.limits, shared_user=uid is None, bounds=setup.group.bounds
            )
            document = {
                "abi": abi,
                "argv": [*limits, *command.argv],
                "cwd": str(setup.cwd),
                "environment": dict(setup.environment),
                "rules": _rules(setup, [m for m in shown if isinstance(m, Bind)]),
                "seccomp": list(filtered),
                "uid": uid,
            }
            return _launch(json.dumps(document).encode("ascii"), setup)

        return run_in_place(command, workspace, cancel, start, owner=uid)


def landlock_abi() -> int:
    """Return the version of Landlock that this kernel has switched on; 0 when there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _VERSION)))


def _usable_abi() -> int:
    abi = landlock_abi()
    if abi < _OLDEST_ABI:
        has = f"version {abi}" if abi else "none"
        raise SandboxError(
            f"Landlock {_OLDEST_ABI} is needed and this kernel has {has}: Linux 6.2 or later, with "
            "landlock among the modules of the boot parameter lsm= (/sys/kernel/security/lsm)"
        )
    return abi


def _rules(setup: InPlaceSetup, shown: Sequence[Bind]) -> list[tuple[str, str]]:
    """Return paths with what is allowed below them ("read", "write" or "device").

    /proc is among them, because interpreters read about themselves there. It lists processes
    outside, but the kernel lets nobody look into a process that is not locked in the same way.
    """
    system = [mount.source for mount in system_mounts() if isinstance(mount, Bind)]
    system += sorted(Path("/etc").glob("python3*"))  # Debian's sitecustomize.py is a link to there
    found = {(str(path), "read") for path in (*system, *(m.source for m in shown), Path("/proc"))}
    found |= {(path, "device") for path in _DEVICES if Path(path).exists()}
    found |= {(str(path), "write") for path in (setup.run.workspace.path, setup.temporary)}
    if setup.run.channels is not None:
        found.add((str(setup.run.channels.report_directory), "device"))
        found.add((str(setup.run.channels.junit_directory), "write"))
    return sorted(found)


def _open_directories(uid: int, setup: InPlaceSetup) -> None:
    """Let another uid pass our private directory to its own ones, and nothing else there."""
    tree = setup.run.workspace.path
    for parent in tree.parent.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            raise SandboxError(
                f"{parent} is closed to other users, and as root Landlock needs one; set TMPDIR to "
                "a folder that all can pass"
            )
    tree.chmod(0o700)
    for passage in (tree.parent, setup.temporary.parent):
        passage.chmod(_PASSABLE)
    for own in (setup.temporary, setup.temporary / "home"):
        os.chown(own, uid, uid)


def _launch(document: bytes, setup: InPlaceSetup) -> subprocess.Popen[bytes]:
    """Start the command locked in. Raises SandboxError with the launcher's reason if that fails."""
    said, says = os.pipe()
    configuration = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    try:
        os.write(configuration, document)
        os.lseek(configuration, 0, os.SEEK_SET)
        python = (sys.executable, "-I", "-S", str(_LAUNCHER), str(configuration), str(says))
        process = start_program(
            [*setup.group.entry(), *python],
            cwd=Path("/"),
            environment={"LC_ALL": "C.UTF-8", MARKER: setup.environment[MARKER]},
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
        words = file.read(_MOST_BYTES)
    if words != LOCKED:
        process.kill()
        _, errors = process.communicate()
        lines = (words.removeprefix(LOCKED) or errors).decode("utf-8", "replace").strip()
        raise SandboxError(f"Landlock cannot be used here: {lines.rpartition(chr(10))[2]}")
