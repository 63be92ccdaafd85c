"""The arguments of one `podman run` or `docker run`.

Each guarantee has its option. What only one of the two engines does by default (proxies, secrets of
the distribution, volumes of an image) is switched off or covered for both.
"""

from __future__ import annotations

import math
import os
import resource
from dataclasses import dataclass
from pathlib import Path

from sandbox.container.engine import LABEL, Engine, Image
from sandbox.container.launch import HOSTS, SCRIPT, Controls
from sandbox.environment import USER_NAME
from sandbox.mounts import SYSTEM
from sandbox.runs import JUNIT_DIRECTORY, REPORT_DIRECTORY, SHARED_MEMORY_BYTES, SandboxRun
from sandbox.types import Limits, SandboxError

START = Path("/sandbox")  # our script, its pipe, /etc/hosts

# Images may ask for volumes, which docker would make writable without a bound.
_VOLUME_BYTES = 16 * 1024 * 1024

# podman mounts subscriptions of the host here (containers-mounts.conf(5)) unless we mount first.
_SECRETS = "/run/secrets"

# Our shell and, while it starts the command, a copy of it.
_OWN_PROCESSES = 2

# Engines would raise it to a million, which not every root may.
_OPEN_FILES = 65_536

# When agent and guard were both killed, podman itself ends the container after this time.
_GRACE_SECONDS = 120

# Both clients pass these on when they are configured to.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")

# Variables that the engines or we give to the first process; the command gets none of them.
FIRST_VARIABLES = frozenset(
    {"HOME", "HOSTNAME", "PATH", "TERM", "container", *_PROXIES, *map(str.lower, _PROXIES)}
)

# Mounting something over these would hide the image's programs, or what protects us.
_TAKEN = ("/", "/tmp", "/dev", "/proc", "/sys", "/etc", "/run", "/home", "/root", "/var", *SYSTEM)  # noqa: S108


@dataclass(frozen=True, slots=True)
class ContainerSetup:
    """What one container is made of. `uid` and `gid` are what the command runs as, never 0.

    `homes` are directories of the host that must not be shown.
    """

    name: str
    run: SandboxRun
    uid: int
    gid: int
    controls: Controls
    homes: tuple[Path, ...]


def run_arguments(
    engine: Engine, image: Image, runtime: str | None, setup: ContainerSetup
) -> list[str]:
    """Return the engine's arguments, including the program that runs in the container.

    Raises SandboxError for paths that must not be shown.
    """
    return [
        *("--log-level", "error"),  # warnings would be mixed into the command's own output
        *(("--runtime", runtime) if runtime else ()),
        "run",
        *("--rm", "--name", setup.name, "--label", f"{LABEL}=1"),
        *("--pull", "never", "--log-driver", "none", "--no-healthcheck"),
        *_isolation(engine, setup),
        *_limits(engine, setup.run.limits),
        *_variables(),
        *_temporary(engine, image, setup.run.limits.tmp),
        *_mounts(setup),
        *("--workdir", "/", "--entrypoint", "/bin/sh"),
        image.identity,
        str(START / SCRIPT),
    ]


def _isolation(engine: Engine, setup: ContainerSetup) -> list[str]:
    found = [
        *(() if setup.run.command.network else ("--network", "none")),
        *("--ipc", "private", "--hostname", USER_NAME),
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", f"{setup.uid}:{setup.gid}"),
    ]
    if engine.kind == "podman":
        # Otherwise more of the file system is writable, and the host's proxies are known inside.
        found += ["--read-only-tmpfs=false", "--http-proxy=false", "--image-volume", "ignore"]
        found += ["--pidfile", str(setup.controls.pid_file)]
        found += ["--conmon-pidfile", str(setup.controls.monitor_file)]
    if setup.controls.seccomp is not None:
        found += ["--security-opt", f"seccomp={setup.controls.seccomp}"]
    if engine.rootless:
        found += ["--userns", "keep-id"]
    elif engine.kind == "docker":
        found += ["--userns", "host"]  # a daemon that maps uids would not let ours in
    if engine.selinux:
        # Relabelling would change the user's own files; the other walls stand.
        found += ["--security-opt", "label=disable"]
    return found


def _limits(engine: Engine, limits: Limits) -> list[str]:
    processes = limits.processes + _OWN_PROCESSES
    found = [
        *("--shm-size", str(SHARED_MEMORY_BYTES)),
        *("--ulimit", f"cpu={limits.cpu_seconds}:{limits.cpu_seconds + 1}"),
        *("--ulimit", f"fsize={limits.file_size}:{limits.file_size}"),
        *("--ulimit", "core=0:0"),
        *("--ulimit", _bounded("nofile", resource.RLIMIT_NOFILE, _OPEN_FILES)),
    ]
    if engine.groups:
        memory = str(limits.memory)
        found += ["--memory", memory, "--memory-swap", memory, "--pids-limit", str(processes)]
        # The group must be what refuses a process, because it counts refusals.
        found += ["--ulimit", _bounded("nproc", resource.RLIMIT_NPROC, 2 * processes)]
    else:
        found += ["--ulimit", _bounded("nproc", resource.RLIMIT_NPROC, processes)]
    if engine.kind == "podman":
        found += ["--timeout", str(math.ceil(limits.wall_seconds) + _GRACE_SECONDS)]
    return found


def _bounded(name: str, kind: int, most: int) -> str:
    """Return an `--ulimit` of `most`, or of our own hard limit where that is less."""
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    return f"{name}={value}:{value}"


def _variables() -> list[str]:
    """Clear proxies for the first process, whose environment the command can read.

    Our script sets the variables of the command itself.
    """
    names = sorted({*_PROXIES, *map(str.lower, _PROXIES)})
    return [part for name in names for part in ("--env", f"{name}=")]


def _temporary(engine: Engine, image: Image, tmp: int) -> list[str]:
    # podman would otherwise copy the content of the image into them.
    fresh = ",notmpcopyup" if engine.kind == "podman" else ""
    sizes = {volume: _VOLUME_BYTES for volume in image.volumes if volume not in _TAKEN}
    sizes[_SECRETS] = 4096
    sizes["/tmp"] = tmp  # noqa: S108
    found: list[str] = []
    for path, size in sorted(sizes.items()):
        options = f"rw,exec,nosuid,nodev,size={size},mode=1777{fresh}"
        found += ["--tmpfs", f"{path}:{options}"]
    return found


def _mounts(setup: ContainerSetup) -> list[str]:
    workspace, channels, start = setup.run.workspace, setup.run.channels, setup.controls.start
    if str(workspace.mount) in _TAKEN or ".." in workspace.mount.parts:
        raise SandboxError(f"the workspace cannot be mounted on {workspace.mount}")
    found = [
        _bind(start, START),
        _bind(start / HOSTS, Path("/etc/hosts")),
        _bind(workspace.path, workspace.mount, writable=True),
        *(_bind(source, target) for source, target in _shown(setup)),
    ]
    if channels is not None:
        found.append(_bind(channels.report_directory, REPORT_DIRECTORY))
        found.append(_bind(channels.junit_directory, JUNIT_DIRECTORY, writable=True))
    return [part for mount in found for part in ("--mount", mount)]


def _shown(setup: ContainerSetup) -> list[tuple[Path, Path]]:
    """Return (source, target) of each host path to show, at its own path.

    Refuses paths that would hide the image's system. The workspace already shows paths inside it.
    """
    found: dict[Path, Path] = {}
    refused = (*map(Path, _TAKEN), *setup.homes)
    for path in setup.run.command.read_only:
        target = Path(os.path.abspath(path))  # noqa: PTH100 - without following links
        source = Path(os.path.realpath(target))
        if not source.exists():
            raise SandboxError(f"{path} does not exist; it cannot be shown in the container")
        if any(home.is_relative_to(place) for home in refused for place in (source, target)):
            raise SandboxError(f"refused to show {path} in the container: it holds too much")
        if not target.is_relative_to(setup.run.workspace.mount):
            found[target] = source
    return [(source, target) for target, source in sorted(found.items())]


def _bind(source: Path, target: Path, *, writable: bool = False) -> str:
    """Return the value of `--mount`: one line of CSV (RFC 4180), which can express any path."""
    fields = ["type=bind", f"src={source}", f"dst={target}", *(() if writable else ("readonly",))]
    if any("\n" in field or "\0" in field for field in fields):
        raise SandboxError(f"not a path that a container can be given: {str(target)!r}")
    return ",".join(f'"{field.replace(chr(34), chr(34) * 2)}"' for field in fields)
