"""Where a repository lies, and the scope of a run: the folder that it is limited to.

A repository is found by its folders only, without git and without reading configuration: that could
name any folder of the machine as the work tree (`core.worktree`). Here the work tree is always the
folder that holds `.git`.

Paths stay relative to the repository's root everywhere. Only the detection of test runners reads a
folder as if it were a repository of its own (`subtree`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from agent.errors import RepositoryError
from agent.types import SkippedFile, SourceFile
from agent.types.protocols import Snapshot


@dataclass(frozen=True, slots=True)
class Location:
    """A repository on disk.

    `root` is the top of the work tree, or the git directory itself when there is none (`bare`).
    `git_dir` is the value of `--git-dir`: a directory, or a `.git` file that names one. `inside` is
    the given path relative to `root` (POSIX), "" for `root` itself.
    """

    root: Path
    git_dir: Path
    bare: bool
    inside: str = ""

    @property
    def is_surely_whole(self) -> bool:
        """Whether it is certainly no shallow clone. Of a linked work tree only git knows."""
        return self.git_dir.is_dir() and not (self.git_dir / "shallow").exists()


def locate(path: Path) -> Location:
    """Return the repository that contains `path`: itself or the nearest parent with `.git`.

    A bare repository counts only if `path` names it, since a project may have one among its files.
    Raises RepositoryError.
    """
    try:
        return _locate(path)
    except PermissionError as error:
        name = error.filename or path
        raise RepositoryError(f"{name}: permission denied; run as a user who may read it") from None
    except (OSError, RuntimeError, ValueError) as error:  # loops of symlinks, NUL in the name
        raise RepositoryError(f"{path}: cannot be opened as a repository: {error}") from None


def _locate(path: Path) -> Location:
    if not path.exists():
        raise RepositoryError(f"{path}: no such directory; give the repository's path with --repo")
    if not path.is_dir():
        raise RepositoryError(f"{path}: not a directory; --repo takes a repository's directory")
    real = path.resolve()
    for top in (real, *real.parents):
        if (top / ".git").exists():
            inside = real.relative_to(top).as_posix()
            return Location(top, top / ".git", bare=False, inside="" if inside == "." else inside)
        if top == real and _is_git_dir(top):
            return Location(top, top, bare=True)
    raise RepositoryError(
        f"{path}: not a git repository; run `git init` and commit, or give another path"
    )


def _is_git_dir(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()


# ------------------------------------------------------------------------------------------- scope

# The files by which package managers and test runners recognise the root of a project.
_PROJECT_FILES = frozenset(
    {
        "pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "noxfile.py",
        "requirements.txt", "manage.py", "package.json", "go.mod", "Cargo.toml", "pom.xml",
    }
)  # fmt: skip


def find_scope(location: Location, given: Path | None, files: Collection[str]) -> str:
    """Return the scope as a path below the root, "" for the whole repository.

    `given` is relative to the root, or absolute. None means the project that the folder of
    `location` is in. `files` are the paths of the repository's files.

    Raises RepositoryError for a folder outside the repository or without files.
    """
    if given is None:
        return _project_around(location.inside, files)
    root = location.root
    place = Path(os.path.normpath(root / given.expanduser()))
    if not place.is_relative_to(root):
        real = place.resolve()
        if not given.expanduser().is_absolute() or not real.is_relative_to(root):
            raise RepositoryError(f"--path {given}: leads out of the repository {root}")
        place = real
    scope = place.relative_to(root).as_posix()
    if scope == ".":
        return ""
    if scope in files:
        raise RepositoryError(f"--path {given}: is a file; name the folder that it is in")
    if not any(is_below(scope, path) for path in files):
        raise RepositoryError(
            f"--path {given}: {root} has no files there; name a folder relative to its root"
        )
    return scope


def _project_around(inside: str, files: Collection[str]) -> str:
    """Return the nearest folder at or above `inside` that has a project file, below the root."""
    folder = PurePosixPath(inside)
    while folder.name:
        if any(f"{folder}/{name}" in files for name in _PROJECT_FILES):
            return str(folder)
        folder = folder.parent
    return ""


def is_below(scope: str, path: str) -> bool:
    """Whether a path of the repository lies in the scope."""
    return not scope or path.startswith(f"{scope}/")


@dataclass(frozen=True)
class _View:
    """A `Snapshot` that shows a part of another one.

    `names` maps the paths of this view to those of the other one.
    """

    whole: Snapshot
    scope: str
    names: Mapping[str, str]
    outer: Callable[[str], str]

    @property
    def root(self) -> Path:
        return self.whole.root

    @property
    def commit(self) -> str:
        return self.whole.commit

    @property
    def dirty(self) -> bool:
        return self.whole.dirty

    @cached_property
    def files(self) -> Mapping[str, SourceFile]:
        files = self.whole.files
        return {name: replace(files[path], path=name) for name, path in self.names.items()}

    @property
    def skipped(self) -> Sequence[SkippedFile]:
        return self.whole.skipped

    def read(self, path: str) -> bytes:
        return self.whole.read(self.names[path])

    def text(self, path: str) -> str:
        return self.whole.text(self.names[path])

    def exists(self, path: str) -> bool:
        return self.whole.exists(self.outer(path))

    def overlay(self) -> Mapping[str, bytes | None]:
        return self.whole.overlay()


def narrowed(snapshot: Snapshot, paths: Iterable[str]) -> Snapshot:
    """Return the snapshot with only these of its files, in path order."""
    return _View(snapshot, snapshot.scope, {path: path for path in sorted(paths)}, str)


def subtree(snapshot: Snapshot) -> Snapshot:
    """Return the scope of the snapshot with paths relative to it; `skipped` and `overlay` stay."""
    scope = snapshot.scope
    if not scope:
        return snapshot
    start = len(scope) + 1
    names = {path[start:]: path for path in snapshot.files if is_below(scope, path)}
    return _View(snapshot, "", names, lambda path: f"{scope}/{path}")
