"""Chooses the backend that was asked for, and finds out by trying what it guarantees here."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from sandbox.cgroups import sweep_groups
from sandbox.files import make_private, remove_tree, sweep_stale
from sandbox.host import last_line
from sandbox.types import Command, Ended, Limits, Probe, RunResult, Sandbox, SandboxError
from sandbox.workspace import empty_workspace

# What a backend may guarantee, and without which of it a run is not isolated. Landlock lacks the
# namespaces, so a run under it never counts as isolated.
_GUARANTEES = (
    *("ipc-namespace", "no-foreign-signals", "no-nested-namespaces", "no-network"),
    *("no-privileges", "pid-namespace", "private-environment", "private-home"),
    *("read-only-kernel-settings", "read-only-modes", "read-only-root", "syscall-filter", "usable"),
)
_WALLS = frozenset(
    {"no-network", "no-privileges", "private-environment", "private-home"}
    | {"read-only-kernel-settings", "read-only-root", "usable"}
)

_MOUNT = Path("/workspace")
_PROBE_LIMITS = Limits(wall_seconds=20.0, cpu_seconds=10)

# Needs only POSIX sh and coreutils. Prints the guarantees that do not hold, and in the end "tried".
# Arguments: our pid, a file of ours, an interpreter ("" for none), the variables that process 1 may
# have, our namespaces of net, pid, ipc and uts, then places to be hidden with "device:inode".
_SCRIPT = r"""
can() { lost=$1; shift; "$@" >/dev/null 2>&1 && echo "$lost"; }
same() { here=$(readlink /proc/self/ns/$1); [ -z "$here" ] || [ "$here" = "$2" ]; }
pid=$1 file=$2 python=$3 variables=" $4 " net=$5 ipc=$7 uts=$8
stat / >/dev/null || exit 1
same pid "$6" && echo pid-namespace
{ same ipc $ipc || same uts $uts; } && echo ipc-namespace
if same net $net; then
    "$python" -I -S -c 'import socket' 2>/dev/null || echo no-network
    for family in 1 2 10 16 40; do
        can no-network "$python" -I -S -c "import socket; socket.socket($family, 1)"
    done
else
    tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | grep -qv '^lo$' && echo no-network
fi
# Only root, as which namespaces are made, can and must empty the bounding set.
sets='Inh|Prm|Eff'; same pid "$6" || sets="$sets|Bnd"
[ "$(grep -cE "^Cap($sets):.0+$" /proc/self/status)" = "$(echo "$sets" | tr '|' '\n' | wc -l)" ] &&
    grep -q '^NoNewPrivs:.1$' /proc/self/status && [ "$(id -u)" != 0 ] || echo no-privileges
grep -q '^Seccomp:.2$' /proc/self/status || echo syscall-filter
for process in 1 $pid; do
    for name in $(tr '\0' '\n' 2>/dev/null </proc/$process/environ | cut -d= -f1); do
        case "$variables" in *" $name "*) ;; *) echo private-environment ;; esac
    done
done
can no-foreign-signals kill -0 $pid
can read-only-modes chmod 640 "$file"
can private-home cat "$file"
for place in / /usr /etc /dev; do can read-only-root touch "$place/probe"; done
can read-only-kernel-settings sh -c 'read -r old </proc/sys/kernel/core_pattern &&
    echo "$old" >/proc/sys/kernel/core_pattern'
can no-nested-namespaces unshare --user true
command -v unshare >/dev/null || echo no-nested-namespaces
touch probe "$TMPDIR/probe" "$HOME/probe" || echo usable
shift 8
while [ $# -gt 0 ]; do
    [ "$(stat -c %d:%i "$1" 2>/dev/null)" = "$2" ] && can private-home ls "$1"
    shift 2
done
echo tried
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
        lost = _run_script(sandbox, homes, frozenset(variables), python)
        guarantees = {name: name not in lost for name in _GUARANTEES}
        for name, (argv, limits, ended) in _EXCESSES.items():  # each limit is exceeded
            result = _run_trial(sandbox, Command(argv, limits=limits))
            guarantees[name] = result.ended is ended
    except SandboxError as error:
        return unavailable_probe(sandbox.name, str(error))
    landlock = sandbox.name == "landlock"
    required = _WALLS | {"syscall-filter" if landlock else "pid-namespace"}
    missing = sorted(name for name in required if not guarantees[name])
    problem = f"{sandbox.name} gives no {', '.join(missing)} here" if missing else ""
    ordered = dict(sorted(guarantees.items()))
    return Probe(sandbox.name, not missing, not missing and not landlock, ordered, problem)


def unavailable_probe(backend: str, problem: str) -> Probe:
    """Make the probe of a backend that cannot run anything."""
    return Probe(backend, available=False, isolated=False, guarantees={}, problem=problem)


def _run_script(
    sandbox: Sandbox, homes: Sequence[Path], variables: frozenset[str], python: Path | None
) -> set[str]:
    """Return the guarantees that do not hold."""
    outside = make_private()
    try:
        file = outside / "probe"
        file.touch(mode=0o600)
        places = [part for home in _private(homes) for part in (str(home), _identity(home))]
        ours = [
            str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("net", "pid", "ipc", "uts")
        ]
        allowed = " ".join(sorted(variables))
        arguments = (str(os.getpid()), str(file), str(python or ""), allowed, *ours, *places)
        command = Command(("/bin/sh", "-c", _SCRIPT, "sh", *arguments), limits=_PROBE_LIMITS)
        result = _run_trial(sandbox, command)
    finally:
        remove_tree(outside)
    lines = result.stdout.decode("utf-8", errors="replace").split()
    if result.exit_code != 0 or lines[-1:] != ["tried"]:
        ended = last_line(result.stderr) if result.ended is Ended.EXITED else ""
        raise SandboxError(f"a trial run failed: {ended or result.ended}")
    return set(lines)


def _run_trial(sandbox: Sandbox, command: Command) -> RunResult:
    with empty_workspace(mount=_MOUNT) as workspace:
        return sandbox.run(command, workspace)


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
    from sandbox.container import ContainerSandbox
    from sandbox.landlock import LandlockSandbox

    no_image = unavailable_probe("container", "it needs an image: --image")
    probes: dict[str, Callable[[], Probe]] = {
        "bwrap": BwrapSandbox().probe,
        "container": ContainerSandbox(image).probe if image else lambda: no_image,
        "landlock": LandlockSandbox().probe,
    }
    return tuple(probe() for name, probe in probes.items() if name != chosen)
