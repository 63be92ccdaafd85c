"""Finding out, by trying, what a backend guarantees here, and what to do if it cannot."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.types import Command, Ended, Limits, Probe, RunResult, Sandbox, SandboxError
from sandbox.workspace import empty

# Without these a run is not isolated, whatever else holds.
REQUIRED = (
    "no-network",
    "no-privileges",
    "pid-namespace",
    "private-environment",
    "private-home",
    "read-only-kernel-settings",
    "read-only-root",
    "usable",
)

_MOUNT = Path("/workspace")
_LIMITS = Limits(wall_seconds=20.0, cpu_seconds=10)
_NAMESPACES = ("net", "pid", "mnt", "ipc", "uts")

_UPDATE = "try a newer kernel, or a newer version of it"

# POSIX sh and coreutils: no interpreter is needed. Each line of output is one fact.
_SCRIPT = r"""
try() { fact=$1; shift; "$@" >/dev/null 2>&1 && echo "did=$fact"; }
for name in net pid mnt ipc uts; do echo "$name=$(readlink /proc/self/ns/$name)"; done
grep -E '^(CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t ' | tr : =
tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sed s/^/interface=/
tr '\0' '\n' </proc/1/environ 2>/dev/null | cut -d= -f1 | sed s/^/environment=/
echo "uid=$(id -u)"
for place in / /usr /etc /dev; do try write-root touch "$place/probe"; done
try write-kernel sh -c 'read -r old </proc/sys/kernel/core_pattern &&
    echo "$old" >/proc/sys/kernel/core_pattern'
try nest unshare --user true; command -v unshare >/dev/null || echo did=nest
try use touch probe "$TMPDIR/probe" /dev/shm/probe "$HOME/probe"
for place in / "$@"; do echo "place=$(stat -c %d:%i "$place" 2>/dev/null) $place"; done
exit 0
"""

_WRITE = "for i in 1 2 3; do dd if=/dev/zero of=$i bs=8M count=1 || exit; done"

# One process that takes 64 MiB, and files of 24 MiB in all: more than the limits below allow. What
# is not held to them ends well.
_EXCESSES = {
    "total-memory-limit": (
        ("dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1"),
        Limits(wall_seconds=20.0, memory=32 * 1024 * 1024),
        Ended.MEMORY_LIMIT,
    ),
    "workspace-size-limit": (
        ("/bin/sh", "-c", f"{_WRITE}; sleep 5"),  # cut short where the limit holds
        Limits(wall_seconds=20.0, workspace=16 * 1024 * 1024),
        Ended.DISK_LIMIT,
    ),
}


@dataclass(frozen=True, slots=True)
class Host:
    """What a sandbox is compared with: our namespaces, our homes, and what its init may know.

    `homes` are "device:inode" of directories that must not be seen; `variables` the names that the
    backend itself gives to the first process of the sandbox.
    """

    namespaces: Mapping[str, str]
    homes: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset({"LC_ALL"})


def probe_by_running(
    sandbox: Sandbox, *, homes: Sequence[Path], variables: Iterable[str] = ("LC_ALL",)
) -> Probe:
    """Run a script in `sandbox` and judge by what it could do there.

    `homes` are directories that must not be visible; `variables` are those that the backend gives
    to its first process. Raises SandboxError when nothing can be run.
    """
    private = _private(homes)
    host = Host(_own_namespaces(), _identities(private), frozenset(variables))
    argv = ("/bin/sh", "-c", _SCRIPT, "sh", *map(str, private))
    result = trial(sandbox, Command(argv=argv, limits=_LIMITS))
    if result.exit_code != 0:
        said = result.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise SandboxError(f"a trial run failed: {' '.join(said[-1:]) or result.ended}")
    judged = judge(result.stdout.decode("utf-8", errors="replace"), host)
    guarantees = {**judged, **excesses(sandbox)}
    missing = [name for name in REQUIRED if not guarantees[name]]
    problem = f"{sandbox.name} gives no {', '.join(missing)} here; {_UPDATE}" if missing else ""
    return Probe(sandbox.name, not missing, not missing, dict(sorted(guarantees.items())), problem)


def trial(sandbox: Sandbox, command: Command) -> RunResult:
    """Run a command in a workspace without content. Raises SandboxError."""
    with empty(mount=_MOUNT) as workspace:
        return sandbox.run(command, workspace)


def excesses(sandbox: Sandbox) -> Mapping[str, bool]:
    """Which limits on a run as a whole hold, found by exceeding each. Raises SandboxError."""
    commands = {name: Command(argv, limits=limits) for name, (argv, limits, _) in _EXCESSES.items()}
    ended = {name: trial(sandbox, command).ended for name, command in commands.items()}
    return {name: ended[name] is right for name, (_, _, right) in _EXCESSES.items()}


def judge(output: str, host: Host) -> Mapping[str, bool]:
    """Guarantees by name from the script's output."""
    facts = [line.partition("=")[::2] for line in output.splitlines()]
    last = dict(facts)
    did = {value for key, value in facts if key == "did"}
    interfaces = {value for key, value in facts if key == "interface"}
    inherited = {value for key, value in facts if key == "environment"}
    places = [value.partition(" ")[0] for key, value in facts if key == "place"]
    own = {name: last.get(name, "") not in ("", host.namespaces.get(name)) for name in _NAMESPACES}
    powerless = all(_is_zero(last.get(key, "")) for key in ("CapEff", "CapPrm", "CapBnd"))
    looked = bool(places and places[0])  # the root is always there; else stat(1) is missing
    return {
        "ipc-namespace": own["ipc"] and own["uts"],
        "no-nested-namespaces": "nest" not in did,
        "no-network": own["net"] and interfaces <= {"lo"},
        "no-privileges": powerless and last.get("NoNewPrivs") == "1" and last.get("uid") != "0",
        "pid-namespace": own["pid"],
        "private-environment": inherited <= host.variables,
        "private-home": own["mnt"] and looked and host.homes.isdisjoint(places),
        "read-only-kernel-settings": "write-kernel" not in did,
        "read-only-root": own["mnt"] and "write-root" not in did,
        "syscall-filter": last.get("Seccomp") == "2",
        "usable": "use" in did,
    }


def own_homes() -> tuple[Path, ...]:
    """Every directory that this user would call home, in order."""
    found = {Path(os.path.realpath(os.environ["HOME"]))} if os.environ.get("HOME") else set()
    try:
        found.add(Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)))
    except KeyError:
        pass  # a uid without an entry, as in many containers
    return tuple(sorted(found))


def unavailable(backend: str, problem: str) -> Probe:
    """What to say of a backend that cannot run anything."""
    return Probe(backend, available=False, isolated=False, guarantees={}, problem=problem)


def _own_namespaces() -> Mapping[str, str]:
    return {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in _NAMESPACES}


def _private(homes: Iterable[Path]) -> list[Path]:
    """Homes that exist and are not part of the system (a service's home may be / or in /usr)."""
    return [home for home in homes if home.exists() and home.parts[1:2] not in ((), ("usr",))]


def _identities(places: Iterable[Path]) -> frozenset[str]:
    found = (place.stat() for place in places)
    return frozenset(f"{state.st_dev}:{state.st_ino}" for state in found)


def _is_zero(mask: str) -> bool:
    return bool(mask) and set(mask) == {"0"}
