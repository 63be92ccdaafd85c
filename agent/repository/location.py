"""Finds a repository by its folders only, without git and without reading configuration.

With git, the configuration of the repository (`core.worktree`) could name any folder of the machine
as its work tree. Here the work tree is always the folder that holds `.git`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.errors import RepositoryError


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
