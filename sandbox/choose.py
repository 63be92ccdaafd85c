"""Chooses the backend that was asked for, and finds out by trying what it guarantees here."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from sandbox.cgroups import sweep_groups
from sandbox.files import make_private, sweep_stale
from sandbox.host import last_line
from sandbox.types import Command, Ended, Limits, Probe, RunResult, Sandbox, SandboxError
from sandbox.workspace import empty_workspace

# Guarantees without which a run is not isolated. Landlock lacks the second kind, so a run under it
# never counts as isolated.
_WALLS = (
    "no-network",
    "no-privileges",
    "private-environment",
    "private-home",
    "read-only-kernel-settings",
    "read-only-root",
    "usable",
)
_OF_NAMESPACES = ("pid-namespace",)
_OF_LANDLOCK = ("syscall-filter",)

_MOUNT = Path("/workspace")
_PROBE_LIMITS = Limits(wall_seconds=20.0, cpu_seconds=10)
_NAMESPACES = ("net", "pid", "mnt", "ipc", "uts")

# Needs only POSIX sh and coreutils. Each line of output is one fact. Arguments: our pid, a file of
# ours, an interpreter ("" for none), then places that must not be visible with "device:inode".
_SCRIPT = r"""
try() { fact=$1; shift; "$@" >/dev/null 2>&1 && echo "did=$fact"; }
pid=$1 file=$2 python=$3; shift 3
for name in net pid mnt ipc uts; do echo "$name=$(readlink /proc/self/ns/$name)"; done
grep -E '^(Cap(Inh|Prm|Eff|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t ' | tr : =
tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sed s/^/interface=/
for process in 1 $pid; do
    tr '\0' '\n' </proc/$process/environ 2>/dev/null | cut -d= -f1 | sed s/^/environment=/
done
echo "uid=$(id -u)"
try signal kill -0 $pid
try change-mode chmod 640 "$file"
try read-home cat "$file"
for place in / /usr /etc /dev; do try write-root touch "$place/probe"; done
try write-kernel sh -c 'read -r old </proc/sys/kernel/core_pattern &&
    echo "$old" >/proc/sys/kernel/core_pattern'
try nest unshare --user true; command -v unshare >/dev/null || echo did=nest
try use touch probe "$TMPDIR/probe" "$HOME/probe"
[ "$python" ] && try python "$python" -I -S -c 'import socket' &&
    for family in 1 2 10 16 40; do
        try socket "$python" -I -S -c "import socket; socket.socket($family, 1)"
    done
stat / >/dev/null && echo looked=1
while [ $# -gt 0 ]; do
    [ "$(stat -c %d:%i "$1" 2>/dev/null)" = "$2" ] && try read-home ls "$1"
    shift 2
done
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


def probe_by_running(
    sandbox: Sandbox,
    *,
    homes: Sequence[Path],
    variables: Iterable[str] = ("LC_ALL",),
    python: Path | None = None,
) -> Probe:
    """Run a script in `sandbox` and judge by what it could do there. Never raises.

    `homes` must not be visible. `variables` are names that the backend gives to its first process.
    `python` tries whether sockets can be made, where the network is this machine's.
    """
    try:
        guarantees = {
            **judge_output(_run_script(sandbox, homes, python), frozenset(variables)),
            **_probe_limits(sandbox),
        }
    except SandboxError as error:
        return unavailable_probe(sandbox.name, str(error))
    landlock = sandbox.name == "landlock"
    required = (*_WALLS, *(_OF_LANDLOCK if landlock else _OF_NAMESPACES))
    missing = [name for name in sorted(required) if not guarantees[name]]
    problem = f"{sandbox.name} gives no {', '.join(missing)} here" if missing else ""
    ordered = dict(sorted(guarantees.items()))
    return Probe(sandbox.name, not missing, not missing and not landlock, ordered, problem)


def unavailable_probe(backend: str, problem: str) -> Probe:
    """Make the probe of a backend that cannot run anything."""
    return Probe(backend, available=False, isolated=False, guarantees={}, problem=problem)


def _run_script(sandbox: Sandbox, homes: Sequence[Path], python: Path | None) -> str:
    outside = make_private()
    try:
        file = outside.path / "probe"
        file.touch(mode=0o600)
        places = [part for home in _private(homes) for part in (str(home), _identity(home))]
        arguments = (str(os.getpid()), str(file), str(python or ""), *places)
        command = Command(("/bin/sh", "-c", _SCRIPT, "sh", *arguments), limits=_PROBE_LIMITS)
        result = _run_trial(sandbox, command)
    finally:
        outside.remove()
    if result.exit_code != 0:
        raise SandboxError(f"a trial run failed: {last_line(result.stderr) or result.ended}")
    return result.stdout.decode("utf-8", errors="replace")


def _run_trial(sandbox: Sandbox, command: Command) -> RunResult:
    with empty_workspace(mount=_MOUNT) as workspace:
        return sandbox.run(command, workspace)


def _probe_limits(sandbox: Sandbox) -> Mapping[str, bool]:
    return {
        name: _run_trial(sandbox, Command(argv, limits=limits)).ended is ended
        for name, (argv, limits, ended) in _EXCESSES.items()
    }


def judge_output(output: str, variables: frozenset[str]) -> Mapping[str, bool]:
    """Derive guarantees by name from the script's output."""
    facts = [line.partition("=")[::2] for line in output.splitlines()]
    last = dict(facts)
    did = {value for key, value in facts if key == "did"}
    interfaces = {value for key, value in facts if key == "interface"}
    inherited = {value for key, value in facts if key == "environment"}
    ours = {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in _NAMESPACES}
    own = {name: last.get(name, "") not in ("", ours[name]) for name in _NAMESPACES}
    # Only root, as which namespaces are made, can and must empty the bounding set.
    sets = ("CapEff", "CapPrm", "CapInh", *(("CapBnd",) if own["pid"] else ()))
    powerless = all(set(last.get(key, "")) == {"0"} for key in sets)
    no_socket = "python" in did and "socket" not in did
    return {
        "ipc-namespace": own["ipc"] and own["uts"],
        "no-foreign-signals": "signal" not in did,
        "no-nested-namespaces": "nest" not in did,
        "no-network": (own["net"] and interfaces <= {"lo"}) or no_socket,
        "no-privileges": powerless and last.get("NoNewPrivs") == "1" and last.get("uid") != "0",
        "pid-namespace": own["pid"],
        "private-environment": inherited <= variables,
        "private-home": "looked" in last and "read-home" not in did,
        "read-only-kernel-settings": "write-kernel" not in did,
        "read-only-modes": "change-mode" not in did,
        "read-only-root": "looked" in last and "write-root" not in did,
        "syscall-filter": last.get("Seccomp") == "2",
        "usable": "use" in did,
    }


def _private(homes: Iterable[Path]) -> list[Path]:
    """Keep homes that exist outside the system (a service's home may be / or in /usr)."""
    return [home for home in homes if home.exists() and home.parts[1:2] not in ((), ("usr",))]


def _identity(place: Path) -> str:
    state = place.stat()
    return f"{state.st_dev}:{state.st_ino}"


def home_directories() -> tuple[Path, ...]:
    """Return the home directories of this user, by HOME and by passwd(5), in order."""
    homes = {Path(os.path.realpath(os.environ["HOME"]))} if os.environ.get("HOME") else set()
    try:
        homes.add(Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)))
    except KeyError:
        pass  # a uid without an entry, as in many containers
    return tuple(sorted(homes))


_INSTALL_GUIDE = "docs/guide/install.md has the settings and the alternatives"

# Words of bwrap when the kernel, and not an argument, stops it.
_FORBIDDEN = ("namespace", "uid map", "loopback", "not permitted", "mount proc", "No space left")


def advise_on_bwrap(stderr: str) -> str:
    """Say what to install or allow, by what bwrap printed ("": it is missing)."""
    if not stderr:
        return f"install the package bubblewrap; {_INSTALL_GUIDE}"
    if any(word in stderr for word in _FORBIDDEN):
        return (
            "this kernel or container forbids user namespaces (try: unshare --user --net true); "
            f"{_INSTALL_GUIDE}"
        )
    return "check the mount point of the workspace and the paths to be shown"


# ---- the choice

# "auto" is bubblewrap, or a container if an image is named; the others are asked for by name.
Backend = Literal["auto", "bwrap", "container", "landlock"]


def check_isolation(sandbox: Sandbox) -> Sandbox:
    """Return the same backend after a trial that it keeps its promises on this machine.

    Also removes what killed agents left behind. Raises SandboxError, with what to install or allow.
    """
    sweep_stale()
    sweep_groups()
    if sandbox.name == "process":
        return sandbox
    if sandbox.name == "container":
        from sandbox.container import ContainerSandbox

        if isinstance(sandbox, ContainerSandbox):
            sandbox.sweep()
    probe = sandbox.probe()
    # Landlock never isolates completely. Whoever names it has chosen what `available` promises.
    if not (probe.available if sandbox.name == "landlock" else probe.isolated):
        raise SandboxError(f"no isolation on this machine: {probe.problem}")
    return sandbox


def make_sandbox(*, unsafe: bool, backend: Backend = "auto", image: str | None = None) -> Sandbox:
    """Make the backend of these settings without a trial. Raises SandboxError."""
    if unsafe:
        if backend != "auto" or image is not None:
            raise SandboxError("a sandbox and none at all were both asked for; leave one out")
        from sandbox.in_place import ProcessSandbox

        return ProcessSandbox()
    if image is not None and backend not in ("auto", "container"):
        raise SandboxError(f"an image is for containers, not for {backend}; leave one out")
    if image is not None:
        from sandbox.container import ContainerSandbox

        return ContainerSandbox(image)
    if backend == "container":
        raise SandboxError(
            "a container needs an image that is on this machine; name it with --image"
        )
    if backend == "landlock":
        from sandbox.landlock import LandlockSandbox

        return LandlockSandbox()
    from sandbox.bwrap import BwrapSandbox

    return BwrapSandbox()


def other_backends(chosen: str, image: str | None = None) -> tuple[Probe, ...]:
    """Probe the isolating backends other than `chosen`, in order of names. Never raises."""
    from sandbox.bwrap import BwrapSandbox
    from sandbox.container import ContainerSandbox, probe_engine
    from sandbox.landlock import LandlockSandbox

    probes: dict[str, Callable[[], Probe]] = {
        "bwrap": BwrapSandbox().probe,
        "container": ContainerSandbox(image).probe if image else probe_engine,
        "landlock": LandlockSandbox().probe,
    }
    return tuple(probe() for name, probe in probes.items() if name != chosen)


def explain_closed_paths(sandbox: Sandbox, needed: Iterable[Path]) -> str:
    """Say why a command's uid cannot enter these absolute paths and what to do; "" if it can."""
    if sandbox.name != "landlock" or os.geteuid() != 0:
        return ""
    for way in (each for path in needed for each in (path, path.resolve())):
        for folder in (*reversed(way.parents), way):
            if folder.is_dir() and not folder.stat().st_mode & stat.S_IXOTH:
                return (
                    f"{folder} is closed to other users, and as root Landlock needs one: name an "
                    f"interpreter elsewhere with --python, or let others pass: chmod o+x {folder}"
                )
    return ""
