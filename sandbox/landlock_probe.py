"""What Landlock guarantees on this machine, found by trying from inside.

The trial is Python, for a shell cannot make sockets: it runs in the interpreter that runs us.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from sandbox.interpreter import find_interpreter
from sandbox.private import make_private
from sandbox.probing import excesses, trial
from sandbox.types import Command, Limits, Probe, Sandbox, SandboxError

# What a run under Landlock must have; the rest is what this backend is reduced by.
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

_LIMITS = Limits(wall_seconds=20.0, cpu_seconds=10)

# Arguments: a private file of ours, our pid. Prints the names of what could be done.
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
        command = Command((str(found.executable), *options), limits=_LIMITS, read_only=found.paths)
        result = trial(sandbox, command)
    finally:
        outside.remove()
    try:
        facts = json.loads(result.stdout)
        guarantees = {**judge(facts), **excesses(sandbox)}
    except (ValueError, LookupError, TypeError) as error:
        said = result.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise SandboxError(f"a trial run failed: {' '.join(said[-1:]) or result.ended}") from error
    missing = [name for name in REQUIRED if not guarantees[name]]
    problem = f"{sandbox.name} gives no {', '.join(missing)} here; use bwrap" if missing else ""
    return Probe(sandbox.name, not missing, False, dict(sorted(guarantees.items())), problem)


def judge(facts: Mapping[str, object]) -> Mapping[str, bool]:
    """Guarantees by name from what the trial printed. Raises LookupError or TypeError."""
    did = frozenset(_strings(facts["did"]))
    status, inside = _texts(facts["status"]), _texts(facts["namespaces"])
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


def _strings(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return [str(item) for item in value]


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return {str(name): str(item) for name, item in value.items()}
