"""What a sandboxed command sees of this machine's files: mounts for the system and interpreters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.types import SandboxError

# Programs and libraries. The last two are the stores of NixOS and Guix.
SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
)

# Public, and read by common libraries. Nothing that identifies the machine or a user.
_ETC = (
    "alternatives",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "protocols",
    "services",
    "timezone",
)

# Never shown: they are, or hold, people's homes and the kernel's files.
_REFUSED = ("/", "/home", "/root", "/proc", "/sys", "/dev", "/etc", "/run", "/var", "/tmp")  # noqa: S108


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path shown at `target`. Total order: by target, so that parents come first."""

    target: Path
    source: Path
    writable: bool = False

    def arguments(self) -> tuple[str, ...]:
        """As options of bwrap."""
        return ("--bind" if self.writable else "--ro-bind", str(self.source), str(self.target))


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link to make inside, as it is on the host."""

    target: Path
    points_to: str

    def arguments(self) -> tuple[str, ...]:
        """As options of bwrap."""
        return ("--symlink", self.points_to, str(self.target))


def system_mounts() -> tuple[Bind | Link, ...]:
    """Return mounts for the system's directories and its public configuration."""
    configuration = (f"/etc/{name}" for name in _ETC)
    found: list[Bind | Link] = []
    for path in map(Path, (*SYSTEM, *configuration)):
        if path.is_symlink() and not path.is_relative_to("/etc"):
            found.append(Link(path, str(path.readlink())))
        elif path.exists():
            found.append(Bind(path, path.resolve()))
    return tuple(found)


def read_only_mounts(paths: Iterable[Path], *, homes: Sequence[Path]) -> tuple[Bind | Link, ...]:
    """Return binds for `paths` at the same paths inside, with the links on the way to them.

    `homes` are directories that must not be shown as a whole. Raises SandboxError for a path that
    is missing or would show one of them.
    """
    refused = {*map(Path, _REFUSED), *homes}
    found: dict[Path, Bind | Link] = {}
    for path in paths:
        real, links = follow_links(path)
        if not real.exists():
            raise SandboxError(f"{path} does not exist; name an interpreter that is installed")
        if any(home.is_relative_to(real) for home in refused):
            raise SandboxError(
                f"refused to show {real} in the sandbox: it holds more than programs"
            )
        found.update({link.target: link for link in links})
        found[real] = Bind(real, real)
    return _visible(found.values())


def follow_links(path: Path) -> tuple[Path, tuple[Link, ...]]:
    """Return the real path of `path` and the symbolic links that lead there, one for each step."""
    links: dict[Path, Link] = {}
    pending = list(reversed(path.absolute().parts[1:]))
    current = Path("/")
    while pending:
        step = pending.pop()
        following = current.parent if step == ".." else current / step
        if following in links or len(links) > 40:  # MAXSYMLINKS of the kernel
            raise SandboxError(f"too many links on the way to {path}")
        if not following.is_symlink():
            current = following
            continue
        points_to = following.readlink()
        links[following] = Link(following, str(points_to))
        pending += reversed([part for part in points_to.parts if part != "/"])
        current = Path("/") if points_to.is_absolute() else current
    return current, tuple(links.values())


def _visible(mounts: Iterable[Bind | Link]) -> tuple[Bind | Link, ...]:
    """Leave out mounts that another bind shows already, and put parents first."""
    shown: list[Bind | Link] = []
    roots = [Path(path) for path in SYSTEM]
    for mount in sorted(mounts, key=lambda mount: mount.target):
        if not any(mount.target.is_relative_to(root) for root in roots):
            shown.append(mount)
            if isinstance(mount, Bind):
                roots.append(mount.target)
    return tuple(shown)
