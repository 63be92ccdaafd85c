"""A user's repository with neighbours, and what a hostile patch did to them: byte for byte."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import run_git
from tests.support.fingerprint import fingerprint

SECRET = "the-secret-beside-the-repository"
MIB = 1024 * 1024

# Names that git, Python or a file system reads in another way than as plain source.
_CONTROL = (".git", ".gitmodules", ".gitattributes", "sitecustomize.py", "usercustomize.py")
_SUFFIXES = (".pyc", ".pth", ".egg-info", ".dist-info")
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`root` is the user's repository, and `outside` is beside it; `folder` holds both."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "target"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"


class World(Surroundings):
    """The repository has links to `outside`."""

    def evidence(self, before: dict[str, tuple[int, int, str]]) -> list[str]:
        """What a patch must never do and did, since the fingerprint `before`."""
        after = fingerprint(self.folder)
        changed = sorted(
            path for path in {*before, *after} if not _same(before.get(path), after.get(path))
        )
        return [problem for path in changed for problem in self._problems(path, path in before)]

    def _problems(self, path: str, known: bool) -> Iterator[str]:
        parts = path.split("/")
        place = self.folder / path
        if parts[-1] == "." or place.is_dir():
            return
        if parts[0] != "target":
            yield f"{path} lies outside and was changed"
        elif ".git" in parts:
            yield f"{path} was changed"
        elif not place.is_symlink() and not place.exists():
            return
        elif place.is_symlink():
            yield f"{path} is a link now"
        else:
            yield from self._content_problems(place, path, known)

    def _content_problems(self, place: Path, path: str, known: bool) -> Iterator[str]:
        mode, data = stat.S_IMODE(place.stat().st_mode), place.read_bytes()
        names = [name.casefold().rstrip(". ") for name in path.split("/")]
        if any(name in _CONTROL or name.endswith(_SUFFIXES) for name in names):
            yield f"{path} is read by git or Python"
        if not all(name.isprintable() and name.isascii() for name in names):
            yield f"{path!r} is not what it looks like"
        if mode & 0o7022:
            yield f"{path} has mode {mode:o}"
        if SECRET.encode() in data:
            yield f"{path} holds the neighbour's secret"
        if b"\0" in data or any(sign in data.decode("utf-8", "replace") for sign in _DIRECTIONS):
            yield f"{path} hides what it is"
        if len(data) > MIB:
            yield f"{path} has {len(data)} bytes"
        twins = [p for p in place.parent.iterdir() if p.name.casefold() == place.name.casefold()]
        if not known and len(twins) > 1:
            yield f"{path} differs from {twins[0].name} in case only"


def make_world(folder: Path) -> World:
    """A repository of a few files, one a tracked link to a secret, one a link to its folder."""
    world = World(folder)
    (world.outside).mkdir()
    (world.outside / "secret.py").write_text(f"value = '{SECRET}'\n")
    world.root.mkdir()
    (world.root / "app.py").write_text("x = 1\ny = 2\n")
    (world.root / "crlf.py").write_bytes(b"x = 1\r\ny = 2\r\n")
    (world.root / "pkg").mkdir()
    (world.root / "pkg" / "mod.py").write_text("limit = 10\n")
    (world.root / "link.py").symlink_to("../outside/secret.py")
    (world.root / "linked").symlink_to("../outside")
    run_git(world.root, "init", "-q")
    run_git(world.root, "add", "-A", "-f")
    run_git(world.root, "commit", "-q", "-m", "base")
    return world


def _same(one: tuple[int, int, str] | None, other: tuple[int, int, str] | None) -> bool:
    """Apart from time stamps."""
    return one is not None and other is not None and (one[0], one[2]) == (other[0], other[2])
