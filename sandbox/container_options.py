"""The arguments of one `podman run` or `docker run`.

Each guarantee has its option; what only one of the two engines does by itself (proxies, secrets of
the distribution, volumes of an image) is switched off or covered for both.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.channels import REPORT_NAME, Channels
from sandbox.container_controls import HOSTS, SCRIPT, Controls
from sandbox.container_engine import LABEL, Engine, Image
from sandbox.identity import NAME
from sandbox.mounts import SYSTEM
from sandbox.types import Command, Limits, SandboxError
from sandbox.workspace import Workspace

HOME = Path("/tmp/home")  # noqa: S108 - inside: a private tmpfs
REPORT = Path("/report") / REPORT_NAME
JUNIT_DIRECTORY = Path("/junit")
START = Path("/sandbox")  # our script, its pipe, /etc/hosts

# multiprocessing's semaphores and queues; little enough that it cannot exhaust the machine.
_SHARED_MEMORY = 64 * 1024 * 1024

# Images may ask for volumes; docker would make them writable, without a bound.
_VOLUME_BYTES = 16 * 1024 * 1024

# podman shows subscriptions of the host (containers-mounts.conf(5)) here, unless something is.
_SECRETS = "/run/secrets"

# Our shell and, while it starts the command, a copy of it.
_OWN_PROCESSES = 2

# Engines would raise it to a million, which not every root may.
_OPEN_FILES = 65_536

# podman's own end of a container whose agent and whose guard were both killed.
_GRACE_SECONDS = 120

# Both clients pass them on when they are configured for them.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")

# What the first process is given, by both engines or by us; the command has none of it.
FIRST_VARIABLES = frozenset(
    {"HOME", "HOSTNAME", "PATH", "TERM", "container", *_PROXIES, *map(str.lower, _PROXIES)}
)

# Mounting something over these would hide the image's programs, or what protects us.
_TAKEN = ("/", "/tmp", "/dev", "/proc", "/sys", "/etc", "/run", "/home", "/root", "/var", *SYSTEM)  # noqa: S108


@dataclass(frozen=True, slots=True)
class Inside:
    """What one container is made of. `uid` is what the command runs as, never 0."""

    name: str
    workspace: Workspace
    uid: int
    gid: int
    controls: Controls
    channels: Channels | None
    homes: tuple[Path, ...]


def run_arguments(
    engine: Engine, image: Image, runtime: str | None, command: Command, inside: Inside
) -> list[str]:
    """The engine's arguments up to and including what runs in the container.

    Raises SandboxError for paths that must not be shown.
    """
    return [
        *("--log-level", "error"),  # warnings would be mixed into the command's own output
        *(("--runtime", runtime) if runtime else ()),
        "run",
        *("--rm", "--name", inside.name, "--label", f"{LABEL}=1"),
        *("--pull", "never", "--log-driver", "none", "--no-healthcheck"),
        *_isolation(engine, inside),
        *_limits(engine, command),
        *_variables(),
        *_temporary(engine, image, command.limits.tmp),
        *_mounts(command, inside),
        *("--workdir", "/", "--entrypoint", "/bin/sh"),
        image.identity,
        str(START / SCRIPT),
    ]


def sizes(limits: Limits) -> Mapping[str, int]:
    """The places in memory that a command can write; bytes, in whole pages as the kernel has it."""
    page = os.sysconf("SC_PAGE_SIZE")
    return {"/dev/shm": _SHARED_MEMORY, "/tmp": -(-limits.tmp // page) * page}  # noqa: S108


def _isolation(engine: Engine, inside: Inside) -> list[str]:
    found = [
        *("--network", "none", "--ipc", "private", "--hostname", NAME),
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", f"{inside.uid}:{inside.gid}"),
    ]
    if engine.kind == "podman":
        # Otherwise more of the file system is writable, and the host's proxies are known inside.
        found += ["--read-only-tmpfs=false", "--http-proxy=false", "--image-volume", "ignore"]
        found += ["--pidfile", str(inside.controls.pid_file)]
        found += ["--conmon-pidfile", str(inside.controls.monitor_file)]
    if inside.controls.seccomp is not None:
        found += ["--security-opt", f"seccomp={inside.controls.seccomp}"]
    if engine.rootless:
        found += ["--userns", "keep-id"]
    elif engine.kind == "docker":
        found += ["--userns", "host"]  # a daemon that maps uids would not let ours in
    if engine.selinux:
        # Relabelling would change the user's own files; the other walls stand.
        found += ["--security-opt", "label=disable"]
    return found


def _limits(engine: Engine, command: Command) -> list[str]:
    limits = command.limits
    processes = limits.processes + _OWN_PROCESSES
    found = [
        *("--shm-size", str(_SHARED_MEMORY)),
        *("--ulimit", f"cpu={limits.cpu_seconds}:{limits.cpu_seconds + 1}"),
        *("--ulimit", f"fsize={limits.file_size}:{limits.file_size}"),
        *("--ulimit", "core=0:0"),
        *("--ulimit", _bounded("nofile", resource.RLIMIT_NOFILE, _OPEN_FILES)),
    ]
    if engine.groups:
        memory = str(limits.memory)
        found += ["--memory", memory, "--memory-swap", memory, "--pids-limit", str(processes)]
        # The group is to be what refuses a process: it counts what it refused.
        found += ["--ulimit", _bounded("nproc", resource.RLIMIT_NPROC, 2 * processes)]
    else:
        found += ["--ulimit", _bounded("nproc", resource.RLIMIT_NPROC, processes)]
    if engine.kind == "podman":
        found += ["--timeout", str(math.ceil(limits.wall_seconds) + _GRACE_SECONDS)]
    return found


def _bounded(name: str, kind: int, most: int) -> str:
    """`most`, or what we may set ourselves where that is less."""
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    return f"{name}={value}:{value}"


def _variables() -> list[str]:
    """Of the first process, which the command can read; its own are set by our script."""
    names = sorted({*_PROXIES, *map(str.lower, _PROXIES)})
    return [part for name in names for part in ("--env", f"{name}=")]


def _temporary(engine: Engine, image: Image, tmp: int) -> list[str]:
    # podman would fill them with what the image has there.
    fresh = ",notmpcopyup" if engine.kind == "podman" else ""
    sizes = {volume: _VOLUME_BYTES for volume in image.volumes if volume not in _TAKEN}
    sizes[_SECRETS] = 4096
    sizes["/tmp"] = tmp  # noqa: S108
    found: list[str] = []
    for path, size in sorted(sizes.items()):
        options = f"rw,exec,nosuid,nodev,size={size},mode=1777{fresh}"
        found += ["--tmpfs", f"{path}:{options}"]
    return found


def _mounts(command: Command, inside: Inside) -> list[str]:
    workspace = inside.workspace
    if str(workspace.mount) in _TAKEN or ".." in workspace.mount.parts:
        raise SandboxError(f"the workspace cannot be mounted on {workspace.mount}")
    found = [
        _bind(inside.controls.start, START),
        _bind(inside.controls.start / HOSTS, Path("/etc/hosts")),
        _bind(workspace.path, workspace.mount, writable=True),
        *(_bind(source, target) for source, target in _shown(command.read_only, inside)),
    ]
    if inside.channels is not None:
        found.append(_bind(inside.channels.report_directory, REPORT.parent))
        found.append(_bind(inside.channels.junit_directory, JUNIT_DIRECTORY, writable=True))
    return [part for mount in found for part in ("--mount", mount)]


def _shown(paths: Iterable[Path], inside: Inside) -> list[tuple[Path, Path]]:
    """Host paths at their own places, where they hide nothing of the image's system.

    What lies in the workspace is shown by it already.
    """
    found: dict[Path, Path] = {}
    refused = (*map(Path, _TAKEN), *inside.homes)
    for path in paths:
        target = Path(os.path.abspath(path))  # noqa: PTH100 - without following links
        source = Path(os.path.realpath(target))
        if not source.exists():
            raise SandboxError(f"{path} does not exist; it cannot be shown in the container")
        if any(home.is_relative_to(place) for home in refused for place in (source, target)):
            raise SandboxError(f"refused to show {path} in the container: it holds too much")
        if not target.is_relative_to(inside.workspace.mount):
            found[target] = source
    return [(source, target) for target, source in sorted(found.items())]


def _bind(source: Path, target: Path, *, writable: bool = False) -> str:
    """The value of `--mount`: one line of CSV (RFC 4180), so that any path can be said."""
    fields = ["type=bind", f"src={source}", f"dst={target}", *(() if writable else ("readonly",))]
    if any("\n" in field or "\0" in field for field in fields):
        raise SandboxError(f"not a path that a container can be given: {str(target)!r}")
    return ",".join(f'"{field.replace(chr(34), chr(34) * 2)}"' for field in fields)
