"""The options of one bwrap, in the order in which it carries them out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.environment import USER_NAME, group_text, passwd_text
from sandbox.mounts import SYSTEM, Bind, Link, read_only_mounts, system_mounts
from sandbox.runs import HOME, JUNIT_DIRECTORY, REPORT_DIRECTORY, SandboxRun
from sandbox.types import SandboxError
from sandbox.workspace.copy import Workspace

# The uid inside a user namespace whose maker is root there.
_MAPPED = 1000

_SIZE_SINCE = (0, 7)
_DISABLE_USERNS_SINCE = (0, 8)

_IN_MEMORY = ("/dev/shm", "/tmp")  # noqa: S108

_NO_NETWORK = "--unshare-net"

# The certificates of public authorities, for commands that may use the network.
_CERTIFICATES = ("/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs")

_NAMESPACES = (
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--hostname",
    USER_NAME,
    "--die-with-parent",
    "--new-session",
)

# The capabilities that setpriv needs to give up the rest; bwrap would keep all of them.
_ROOT_OPTIONS = (
    *("--cap-drop", "ALL"),
    *("--cap-add", "CAP_SETUID"),
    *("--cap-add", "CAP_SETGID"),
    *("--cap-add", "CAP_SETPCAP"),
)

# Settings of the kernel that bwrap leaves writable for root (core_pattern leads to the host).
_KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")

# Mounting the workspace here would hide what the command needs, or what protects it.
_TAKEN = (
    *("/", "/tmp", "/dev", "/proc", "/sys", "/etc", str(HOME)),  # noqa: S108
    *(str(REPORT_DIRECTORY), str(JUNIT_DIRECTORY)),
    *SYSTEM,
)


@dataclass(frozen=True, slots=True)
class BwrapSetup:
    """How one run is shown. `uid` is the uid to drop to, None in a user namespace.

    `cwd` is absolute and inside; `homes` are never shown as a whole; `version` is that of bwrap.
    """

    run: SandboxRun
    cwd: Path
    homes: tuple[Path, ...]
    uid: int | None
    version: tuple[int, ...]


def bwrap_options(setup: BwrapSetup, environment: Mapping[str, str]) -> list[str]:
    """Return all options up to the command. Writes files for /etc into the scratch directory.

    Raises SandboxError for paths that must not be shown.
    """
    variables = (part for item in sorted(environment.items()) for part in ("--setenv", *item))
    return [
        *(() if setup.run.command.network else (_NO_NETWORK,)),
        *_NAMESPACES,
        *_privileges(setup),
        "--clearenv",
        *variables,
        *_arguments(system_mounts()),
        *_arguments(_write_etc(setup)),
        *_kernel_file_systems(),
        *_temporary(setup),
        *_arguments(_shown(setup)),
        "--remount-ro",
        "/",
        "--chdir",
        str(setup.cwd),
    ]


def memory_sizes(setup: BwrapSetup) -> Mapping[str, int]:
    """Sizes in bytes of the directories in memory, as far as this bwrap can bound them."""
    return setup.run.memory_sizes if setup.version >= _SIZE_SINCE else {}


def _privileges(setup: BwrapSetup) -> tuple[str, ...]:
    if setup.uid is not None:
        return _ROOT_OPTIONS
    nested = ("--disable-userns",) if setup.version >= _DISABLE_USERNS_SINCE else ()
    uid, gid = map(str, _identity(setup))
    # Root of a user namespace, as in a rootless container, would otherwise keep its capabilities.
    return ("--unshare-user", "--uid", uid, "--gid", gid, "--cap-drop", "ALL", *nested)


def _identity(setup: BwrapSetup) -> tuple[int, int]:
    """Uid and gid of the command: never 0, even where root has no uid to drop to."""
    if setup.uid is not None:
        return setup.uid, setup.uid
    return os.getuid() or _MAPPED, os.getgid() or _MAPPED


def _write_etc(setup: BwrapSetup) -> list[Bind]:
    """Write the files of /etc that on the host name the people and machines of this network."""
    uid, gid = _identity(setup)
    contents = {
        "group": group_text(gid),
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "passwd": passwd_text(uid, gid, str(HOME)),
    }
    certificates: list[Bind] = []
    if setup.run.command.network:
        contents["nsswitch.conf"] = "passwd: files\ngroup: files\nhosts: files dns\n"
        contents["resolv.conf"] = _resolvers()
        shown = (Path(path) for path in _CERTIFICATES)
        certificates = [Bind(path, path.resolve()) for path in shown if path.is_dir()]
    directory = setup.run.scratch / "etc"
    directory.mkdir()
    for name, text in contents.items():
        (directory / name).write_text(text, encoding="ascii", errors="replace")
        (directory / name).chmod(0o644)
    return [*(Bind(Path("/etc", name), directory / name) for name in contents), *certificates]


def _resolvers() -> str:
    """Return the name servers of this machine, which may be a link out of /etc."""
    try:
        return Path("/etc/resolv.conf").read_text("ascii", "replace")
    except OSError:
        return ""


def _kernel_file_systems() -> list[str]:
    settings = [path for path in _KERNEL_SETTINGS if Path(path).exists()]
    return [
        *("--proc", "/proc"),
        *(part for path in settings for part in ("--ro-bind", path, path)),
        *("--dev", "/dev"),
    ]


def _temporary(setup: BwrapSetup) -> list[str]:
    """Directories in memory that only this sandbox sees, writable for any uid."""
    sized = memory_sizes(setup)
    found: list[str] = []
    for path in _IN_MEMORY:
        size = ("--size", str(sized[path])) if path in sized else ()
        found += ["--perms", "1777", *size, "--tmpfs", path]
    return [*found, "--remount-ro", "/dev", "--perms", "0777", "--dir", str(HOME)]


def _shown(setup: BwrapSetup) -> list[Bind | Link]:
    """The workspace, the paths that the command asked to read, and its report channels."""
    workspace, channels = setup.run.workspace, setup.run.channels
    if str(workspace.mount) in _TAKEN:
        raise SandboxError(f"the workspace cannot be mounted on {workspace.mount}")
    shown = list(read_only_mounts(setup.run.command.read_only, homes=setup.homes))
    shown.append(Bind(workspace.mount, workspace.path, writable=True))
    if channels is not None:
        shown.append(Bind(REPORT_DIRECTORY, channels.report_directory))
        shown.append(Bind(JUNIT_DIRECTORY, channels.junit_directory, writable=True))
    ordered = sorted(shown, key=lambda mount: mount.target)
    return [mount for mount in ordered if _make_mount_point(mount, workspace)]


def _make_mount_point(mount: Bind | Link, workspace: Workspace) -> bool:
    """Make the mount point of a path in the workspace; False for a link, which is made at once."""
    if mount.target == workspace.mount or not mount.target.is_relative_to(workspace.mount):
        return True
    relative = str(mount.target.relative_to(workspace.mount))
    if isinstance(mount, Link):
        workspace.ensure_link(relative, mount.points_to)
        return False
    if mount.source.is_dir():
        workspace.ensure_directory(relative)
    elif not workspace.has_file(relative):
        workspace.write(relative, b"")
    return True


def _arguments(mounts: Iterable[Bind | Link]) -> list[str]:
    """Return each mount after the directories that lead to it.

    bwrap itself makes missing directories, but closes them to others when the source is closed to
    others, as our private directory is. The dropped uid could not pass them.
    """
    found: list[str] = []
    made, bound = {Path("/")}, {Path(path) for path in SYSTEM}
    for mount in mounts:
        for parent in reversed(mount.target.parents):
            if parent not in made and not bound.intersection((parent, *parent.parents)):
                found += ["--perms", "0755", "--dir", str(parent)]
                made.add(parent)
        found += mount.arguments()
        bound.add(mount.target)
    return found
