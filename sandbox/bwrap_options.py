"""The options of one bwrap, in the order in which bwrap carries them out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox import identity
from sandbox.channels import JUNIT_NAME, REPORT_NAME, Channels
from sandbox.mounts import SYSTEM, Bind, Link, read_only_mounts, system_mounts
from sandbox.types import SandboxError
from sandbox.workspace import Workspace

HOME = Path("/tmp/home")  # noqa: S108 - inside: a private tmpfs
REPORT = Path("/report", REPORT_NAME)
JUNIT = Path("/junit", JUNIT_NAME)

_MAPPED = 1000

_SIZE_SINCE = (0, 7)
_DISABLE_USERNS_SINCE = (0, 8)

# multiprocessing's semaphores and queues; little enough that it cannot exhaust the machine.
_SHARED_MEMORY = 64 * 1024 * 1024

_IN_MEMORY = ("/dev/shm", "/tmp")  # noqa: S108

_NAMESPACES = (
    "--unshare-net",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--hostname",
    identity.NAME,
    "--die-with-parent",
    "--new-session",
)

# What setpriv needs to give up the rest; without a user namespace bwrap would keep them all.
_ROOT = (
    *("--cap-drop", "ALL"),
    *("--cap-add", "CAP_SETUID"),
    *("--cap-add", "CAP_SETGID"),
    *("--cap-add", "CAP_SETPCAP"),
)

# The kernel's settings, which bwrap leaves writable for root (core_pattern: a way to the host).
_KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")

# Mounting the workspace here would hide what the command needs, or what protects it.
_TAKEN = (
    *("/", "/tmp", "/dev", "/proc", "/sys", "/etc", str(HOME)),  # noqa: S108
    *(str(REPORT.parent), str(JUNIT.parent)),
    *SYSTEM,
)


@dataclass(frozen=True, slots=True)
class Inside:
    """What one sandbox is made of. `uid` is the one to drop to, None in a user namespace.

    `cwd` is absolute and inside; `tmp_size` in bytes; `version` that of bwrap.
    """

    workspace: Workspace
    scratch: Path
    cwd: Path
    read_only: tuple[Path, ...]
    homes: tuple[Path, ...]
    uid: int | None
    channels: Channels | None
    tmp_size: int
    version: tuple[int, ...]


def options(inside: Inside, environment: Mapping[str, str]) -> list[str]:
    """Everything up to the command. Writes the small files of /etc into the scratch directory.

    Raises SandboxError for paths that must not be shown.
    """
    variables = (part for item in sorted(environment.items()) for part in ("--setenv", *item))
    return [
        *_NAMESPACES,
        *_privileges(inside),
        "--clearenv",
        *variables,
        *_arguments(system_mounts()),
        *_arguments(_identity_files(inside)),
        *_kernel_file_systems(),
        *_temporary(inside),
        *_arguments(_shown(inside)),
        "--remount-ro",
        "/",
        "--chdir",
        str(inside.cwd),
    ]


def sizes(inside: Inside) -> Mapping[str, int]:
    """How large the places in memory are, in bytes, where this bwrap can bound them."""
    if inside.version < _SIZE_SINCE:
        return {}
    return dict(zip(_IN_MEMORY, (_SHARED_MEMORY, _whole_pages(inside.tmp_size)), strict=True))


def _whole_pages(size: int) -> int:
    """As the kernel rounds the size of a tmpfs."""
    page = os.sysconf("SC_PAGE_SIZE")
    return -(-size // page) * page


def _privileges(inside: Inside) -> tuple[str, ...]:
    if inside.uid is not None:
        return _ROOT
    nested = ("--disable-userns",) if inside.version >= _DISABLE_USERNS_SINCE else ()
    uid, gid = map(str, _identity(inside))
    # Root of a user namespace, as in a rootless container, would keep its capabilities.
    return ("--unshare-user", "--uid", uid, "--gid", gid, "--cap-drop", "ALL", *nested)


def _identity(inside: Inside) -> tuple[int, int]:
    """Uid and gid of the command: never 0, also where root has nobody to drop to."""
    if inside.uid is not None:
        return inside.uid, inside.uid
    return os.getuid() or _MAPPED, os.getgid() or _MAPPED


def _identity_files(inside: Inside) -> list[Bind]:
    """Files of /etc that would otherwise name the people and machines of this network."""
    uid, gid = _identity(inside)
    contents = {
        "group": identity.group(gid),
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "passwd": identity.passwd(uid, gid, str(HOME)),
    }
    directory = inside.scratch / "etc"
    directory.mkdir()
    for name, text in contents.items():
        (directory / name).write_text(text, encoding="ascii")
        (directory / name).chmod(0o644)
    return [Bind(Path("/etc", name), directory / name) for name in contents]


def _kernel_file_systems() -> list[str]:
    settings = [path for path in _KERNEL_SETTINGS if Path(path).exists()]
    return [
        *("--proc", "/proc"),
        *(part for path in settings for part in ("--ro-bind", path, path)),
        *("--dev", "/dev"),
    ]


def _temporary(inside: Inside) -> list[str]:
    """Writable places in memory, for any uid: only this sandbox can see them."""
    sized = sizes(inside)
    found: list[str] = []
    for path in _IN_MEMORY:
        size = ("--size", str(sized[path])) if path in sized else ()
        found += ["--perms", "1777", *size, "--tmpfs", path]
    return [*found, "--remount-ro", "/dev", "--perms", "0777", "--dir", str(HOME)]


def _shown(inside: Inside) -> list[Bind | Link]:
    """The workspace, what the command asked to read, and the place of its report."""
    workspace = inside.workspace
    if str(workspace.mount) in _TAKEN:
        raise SandboxError(f"the workspace cannot be mounted on {workspace.mount}")
    shown = list(read_only_mounts(inside.read_only, homes=inside.homes))
    shown.append(Bind(workspace.mount, workspace.path, writable=True))
    if inside.channels is not None:
        shown.append(Bind(REPORT.parent, inside.channels.report_directory))
        shown.append(Bind(JUNIT.parent, inside.channels.junit_directory, writable=True))
    ordered = sorted(shown, key=lambda mount: mount.target)
    return [mount for mount in ordered if _has_place(mount, workspace)]


def _has_place(mount: Bind | Link, workspace: Workspace) -> bool:
    """Make the mount point of what lies inside the workspace; links there are made once."""
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
    """Each mount after the directories that lead to it.

    bwrap makes missing ones itself, but closed to others when the source is closed to others, as
    our private directory is; the dropped uid could not pass them.
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
