"""Finding out, by trying, what a backend guarantees here, and what to do if it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sandbox.types import Command, Limits, Probe, Sandbox, SandboxError
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

_UPDATE = "try a newer kernel or bubblewrap"

# What bwrap says when the kernel, and not an argument, is in its way.
_FORBIDDEN = ("namespace", "uid map", "loopback", "not permitted", "mount proc", "No space left")

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
try nest unshare --user true
try use touch probe "$TMPDIR/probe" /dev/shm/probe "$HOME/probe"
for home in "$@"; do try see-home test -e "$home"; done
exit 0
"""


def probe_by_running(sandbox: Sandbox, *, homes: Sequence[Path]) -> Probe:
    """Run a script in `sandbox` and judge by what it could do there.

    `homes` are directories that must not be visible. Raises SandboxError when nothing can be run.
    """
    argv = ("/bin/sh", "-c", _SCRIPT, "sh", *map(str, _private(homes)))
    with empty(mount=_MOUNT) as workspace:
        result = sandbox.run(Command(argv=argv, limits=_LIMITS), workspace)
    if result.exit_code != 0:
        said = result.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise SandboxError(f"a trial run failed: {' '.join(said[-1:]) or result.ended}")
    guarantees = judge(result.stdout.decode("utf-8", errors="replace"), _own_namespaces())
    missing = [name for name in REQUIRED if not guarantees[name]]
    problem = f"{sandbox.name} gives no {', '.join(missing)} here; {_UPDATE}" if missing else ""
    return Probe(sandbox.name, not missing, not missing, guarantees, problem)


def judge(output: str, host: Mapping[str, str]) -> Mapping[str, bool]:
    """Guarantees by name from the script's output; `host` holds our own namespaces by name."""
    facts = [line.partition("=")[::2] for line in output.splitlines()]
    last = dict(facts)
    did = {value for key, value in facts if key == "did"}
    interfaces = {value for key, value in facts if key == "interface"}
    inherited = {value for key, value in facts if key == "environment"}
    own = {name: last.get(name, "") not in ("", host.get(name)) for name in _NAMESPACES}
    powerless = all(_is_zero(last.get(key, "")) for key in ("CapEff", "CapPrm", "CapBnd"))
    return {
        "ipc-namespace": own["ipc"] and own["uts"],
        "no-nested-namespaces": "nest" not in did,
        "no-network": own["net"] and interfaces <= {"lo"},
        "no-privileges": powerless and last.get("NoNewPrivs") == "1" and last.get("uid") != "0",
        "pid-namespace": own["pid"],
        "private-environment": inherited <= {"LC_ALL"},
        "private-home": own["mnt"] and "see-home" not in did,
        "read-only-kernel-settings": "write-kernel" not in did,
        "read-only-root": own["mnt"] and "write-root" not in did,
        "syscall-filter": last.get("Seccomp") == "2",
        "total-memory-limit": False,  # needs cgroups: rlimits bound each process, not their sum
        "usable": "use" in did,
        "workspace-size-limit": False,  # needs a quota: rlimits bound each file, not their sum
    }


def unavailable(backend: str, problem: str) -> Probe:
    """What to say of a backend that cannot run anything."""
    return Probe(backend, available=False, isolated=False, guarantees={}, problem=problem)


def advice(stderr: str, *, proc: Path = Path("/proc"), root: Path = Path("/")) -> str:
    """What to install or allow, from what bwrap said and how this kernel is set."""
    if not stderr:
        return "install the package bubblewrap (apt, dnf, pacman, zypper: bubblewrap)"
    if not any(word in stderr for word in _FORBIDDEN):
        return "check the mount point of the workspace and the paths to be shown"
    settings = proc / "sys"
    if _reads(settings / "kernel/apparmor_restrict_unprivileged_userns", "1"):
        return (
            "AppArmor forbids user namespaces (Ubuntu 23.10 and later): install an AppArmor "
            "profile that grants `userns` to bwrap (package apparmor-profiles: "
            "bwrap-userns-restrict), or as root: "
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if _reads(settings / "kernel/unprivileged_userns_clone", "0"):
        return "user namespaces are off; as root: sysctl -w kernel.unprivileged_userns_clone=1"
    if _reads(settings / "user/max_user_namespaces", "0"):
        return "user namespaces are off; as root: sysctl -w user.max_user_namespaces=16384"
    if any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv")):
        return (
            "this is a container that forbids namespaces: start it with --cap-add SYS_ADMIN "
            "--cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt "
            "apparmor=unconfined --security-opt systempaths=unconfined"
        )
    return "check that this user may create user namespaces (unshare --user --net true)"


def _reads(setting: Path, value: str) -> bool:
    try:
        return setting.read_text(encoding="ascii").strip() == value
    except OSError:
        return False


def _own_namespaces() -> Mapping[str, str]:
    return {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in _NAMESPACES}


def _private(homes: Iterable[Path]) -> list[Path]:
    """Homes that exist and are not part of the system (a service's home may be / or in /usr)."""
    return [home for home in homes if home.exists() and home.parts[1:2] not in ((), ("usr",))]


def _is_zero(mask: str) -> bool:
    return bool(mask) and set(mask) == {"0"}
