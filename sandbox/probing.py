"""Finds out by trying what a backend guarantees here, and advises where bubblewrap cannot run."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.types import Command, Ended, Limits, Probe, RunResult, Sandbox, SandboxError
from sandbox.workspace import empty_workspace

# Guarantees without which a run is not isolated.
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
PROBE_LIMITS = Limits(wall_seconds=20.0, cpu_seconds=10)
_NAMESPACES = ("net", "pid", "mnt", "ipc", "uts")

_UPDATE = "try a newer kernel, or a newer version of it"

# Needs only POSIX sh and coreutils. Each line of output is one fact.
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

# A process that takes 64 MiB, and files of 24 MiB in all: both exceed the limits given here and
# succeed where these limits are not in force.
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
class HostFacts:
    """What a sandbox is compared with: our namespaces and homes, and what its init may know.

    `homes` are "device:inode" of directories that must not be visible. `variables` are names that
    the backend itself gives to the first process of the sandbox.
    """

    namespaces: Mapping[str, str]
    homes: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset({"LC_ALL"})


def probe_by_running(
    sandbox: Sandbox, *, homes: Sequence[Path], variables: Iterable[str] = ("LC_ALL",)
) -> Probe:
    """Run a script in `sandbox` and judge by what it could do there.

    `homes` are directories that must not be visible. `variables` are names that the backend gives
    to its first process. Raises SandboxError when nothing can be run.
    """
    private = _private(homes)
    host = HostFacts(_own_namespaces(), _identities(private), frozenset(variables))
    argv = ("/bin/sh", "-c", _SCRIPT, "sh", *map(str, private))
    result = run_trial(sandbox, Command(argv=argv, limits=PROBE_LIMITS))
    if result.exit_code != 0:
        said = result.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise SandboxError(f"a trial run failed: {' '.join(said[-1:]) or result.ended}")
    judged = judge_output(result.stdout.decode("utf-8", errors="replace"), host)
    guarantees = {**judged, **probe_limits(sandbox)}
    missing = [name for name in REQUIRED if not guarantees[name]]
    problem = f"{sandbox.name} gives no {', '.join(missing)} here; {_UPDATE}" if missing else ""
    return Probe(sandbox.name, not missing, not missing, dict(sorted(guarantees.items())), problem)


def run_trial(sandbox: Sandbox, command: Command) -> RunResult:
    """Run a command in an empty workspace. Raises SandboxError."""
    with empty_workspace(mount=_MOUNT) as workspace:
        return sandbox.run(command, workspace)


def probe_limits(sandbox: Sandbox) -> Mapping[str, bool]:
    """Find out which limits on a whole run hold by exceeding each. Raises SandboxError."""
    commands = {name: Command(argv, limits=limits) for name, (argv, limits, _) in _EXCESSES.items()}
    ended = {name: run_trial(sandbox, command).ended for name, command in commands.items()}
    return {name: ended[name] is right for name, (_, _, right) in _EXCESSES.items()}


def judge_output(output: str, host: HostFacts) -> Mapping[str, bool]:
    """Derive guarantees by name from the script's output."""
    facts = [line.partition("=")[::2] for line in output.splitlines()]
    last = dict(facts)
    did = {value for key, value in facts if key == "did"}
    interfaces = {value for key, value in facts if key == "interface"}
    inherited = {value for key, value in facts if key == "environment"}
    places = [value.partition(" ")[0] for key, value in facts if key == "place"]
    own = {name: last.get(name, "") not in ("", host.namespaces.get(name)) for name in _NAMESPACES}
    powerless = all(_is_zero(last.get(key, "")) for key in ("CapEff", "CapPrm", "CapBnd"))
    looked = bool(places and places[0])  # the root always exists, unless stat(1) is missing
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


def home_directories() -> tuple[Path, ...]:
    """Return the home directories of this user, by HOME and by passwd(5), in order."""
    found = {Path(os.path.realpath(os.environ["HOME"]))} if os.environ.get("HOME") else set()
    try:
        found.add(Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)))
    except KeyError:
        pass  # a uid without an entry, as in many containers
    return tuple(sorted(found))


def unavailable_probe(backend: str, problem: str) -> Probe:
    """Make the probe of a backend that cannot run anything."""
    return Probe(backend, available=False, isolated=False, guarantees={}, problem=problem)


def _own_namespaces() -> Mapping[str, str]:
    return {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in _NAMESPACES}


def _private(homes: Iterable[Path]) -> list[Path]:
    """Keep homes that exist outside the system (a service's home may be / or in /usr)."""
    return [home for home in homes if home.exists() and home.parts[1:2] not in ((), ("usr",))]


def _identities(places: Iterable[Path]) -> frozenset[str]:
    found = (place.stat() for place in places)
    return frozenset(f"{state.st_dev}:{state.st_ino}" for state in found)


def _is_zero(mask: str) -> bool:
    return bool(mask) and set(mask) == {"0"}


# --------------------------------------------------------------- advice where bwrap cannot run

# How to install packages, by ID or ID_LIKE of os-release(5).
_INSTALL = {
    "debian": "apt install",
    "ubuntu": "apt install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "centos": "dnf install",
    "arch": "pacman -S",
    "alpine": "apk add",
    "opensuse": "zypper install",
    "suse": "zypper install",
    "nixos": "nix-env -iA nixos.",
    "void": "xbps-install",
    "gentoo": "emerge sys-apps/",
}

# Words of bwrap when the kernel, and not an argument, stops it.
_FORBIDDEN = ("namespace", "uid map", "loopback", "not permitted", "mount proc", "No space left")

_APPARMOR = (
    "AppArmor forbids user namespaces (Ubuntu 23.10 and later); as root: apt install "
    "apparmor-profiles && cp /usr/share/apparmor/extra-profiles/bwrap-userns-restrict "
    "/etc/apparmor.d/ && apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict, or: sysctl -w "
    "kernel.apparmor_restrict_unprivileged_userns=0"
)
_CLONE = (
    "user namespaces are off for users (Debian 10 and older, Arch's linux-hardened); as root: "
    "sysctl -w kernel.unprivileged_userns_clone=1"
)
_NUMBER = (
    "user namespaces are off (hardened Fedora and RHEL, CentOS 7); as root: sysctl -w "
    "user.max_user_namespaces=16384, and the same line in /etc/sysctl.d/90-userns.conf to keep it"
)
_KERNEL = (
    "this kernel was built without user namespaces; boot the distribution's standard kernel (Arch: "
    "linux, Alpine: linux-lts), or run as root"
)
_CONTAINER = (
    "this is a container that forbids namespaces: start it with --cap-add SYS_ADMIN --cap-add "
    "NET_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt "
    "systempaths=unconfined (podman: --security-opt unmask=ALL), or with --privileged; in "
    "Kubernetes: securityContext.privileged"
)

_MARKS_OF_CONTAINERS = (".dockerenv", "run/.containerenv")


def advise_on_bwrap(stderr: str, *, proc: Path = Path("/proc"), root: Path = Path("/")) -> str:
    """Say what to install or allow, by what bwrap printed ("": it is missing) and this kernel.

    `proc` and `root` are the directories to inspect.
    """
    if not stderr:
        return advise_on_package("bubblewrap", root=root)
    if not any(word in stderr for word in _FORBIDDEN):
        return "check the mount point of the workspace and the paths to be shown"
    settings = proc / "sys"
    if _reads(settings / "kernel/apparmor_restrict_unprivileged_userns", "1"):
        return _APPARMOR
    if _reads(settings / "kernel/unprivileged_userns_clone", "0"):
        return _CLONE
    if _reads(settings / "user/max_user_namespaces", "0"):
        return _NUMBER
    if any((root / mark).exists() for mark in _MARKS_OF_CONTAINERS):
        return _CONTAINER
    if not (proc / "self/ns/user").exists():
        return _KERNEL
    return "check that this user may create user namespaces (unshare --user --net true)"


def advise_on_package(package: str, *, root: Path = Path("/")) -> str:
    """Say how to install a package here, or everywhere if the distribution is unknown."""
    release = _os_release(root)
    for name in (release.get("ID", ""), *release.get("ID_LIKE", "").split()):
        how = _INSTALL.get(name) or _INSTALL.get(name.partition("-")[0])
        if how:
            between = "" if how.endswith(("/", ".")) else " "
            return f"install the package {package}: {how}{between}{package}"
    return f"install the package {package} (apt, dnf, pacman, zypper, apk: {package})"


def _os_release(root: Path) -> Mapping[str, str]:
    for place in ("etc/os-release", "usr/lib/os-release"):
        try:
            lines = (root / place).read_text("utf-8", errors="replace").splitlines()
        except OSError:
            continue
        fields = (line.partition("=") for line in lines)
        return {name.strip(): value.strip().strip("\"'") for name, _, value in fields}
    return {}


def _reads(setting: Path, value: str) -> bool:
    try:
        return setting.read_text(encoding="ascii").strip() == value
    except OSError:
        return False
