"""Send repositories to another machine: pack the objects that it lacks, and unpack them there.

The copy is bare and has only the objects of the project: no configuration, hooks or work tree. git
runs hardened and in private directories on both machines.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import RepositoryError
from agent.repository import open_repository
from agent.shared.files import locked
from sandbox import WorkspaceError, git_environment, git_options, objects_directory

# Packing gigabytes takes minutes; a longer run of git hangs.
_GIT_SECONDS = 1800.0

_WANTED = "refs/wanted"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Pack:
    """The objects of a commit and its history. `shallow` are the commits where that ends."""

    data: bytes
    shallow: tuple[str, ...] = ()


def full_name(repository: Path, commit: str) -> str:
    """Return the full id of a commit. Raises RepositoryError."""
    with open_repository(repository) as git:
        return git.resolve(commit)


def has_commit(repository: Path, commit: str) -> bool:
    """Return whether the repository exists and has the commit with its trees."""
    try:
        with open_repository(repository) as git:
            git.tree(git.resolve(commit), sizes=True)
    except (RepositoryError, OSError):
        return False
    return True


def make_pack(repository: Path, commit: str, there: Sequence[str] = ()) -> Pack:
    """Pack what a copy that has the commits `there` lacks of a commit (40 hex digits).

    Raises RepositoryError.
    """
    with open_repository(repository) as git:
        shallow = tuple(sorted(git.shallow_ends()))
    try:
        objects = objects_directory(repository)
    except WorkspaceError as error:
        raise RepositoryError(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="patchshot-pack-") as private:
        folder = Path(private)
        _git(folder, "init", "--quiet", "--bare", str(folder))
        (folder / "objects/info").mkdir(exist_ok=True)
        (folder / "objects/info/alternates").write_text(f"{objects}\n")
        if shallow:
            (folder / "shallow").write_text("".join(f"{end}\n" for end in shallow))
        known = _known(folder, there)
        revisions = "".join(f"{line}\n" for line in (commit, *(f"^{name}" for name in known)))
        arguments = ("pack-objects", "--quiet", "--revs", "--delta-base-offset", "--stdout")
        return Pack(_git(folder, *arguments, stdin=revisions.encode()), shallow)


def _known(folder: Path, commits: Sequence[str]) -> list[str]:
    """Return those of the commits that are here too; only these can shorten the pack."""
    names = [name for name in commits if _COMMIT.fullmatch(name)]
    asked = "".join(f"{name}\n" for name in names).encode()
    answers = _git(folder, "cat-file", "--batch-check", stdin=asked).decode().splitlines()
    return [name for name, answer in zip(names, answers, strict=True) if " commit " in answer]


def commits_of(copy: Path) -> list[str]:
    """Return the commits that a copy was made for, none if there is no copy."""
    if not (copy / "HEAD").is_file():
        return []
    found = _git(copy, "for-each-ref", "--format=%(objectname)", _WANTED)
    return found.decode("ascii").split()


def unpack(copy: Path, commit: str, pack: Pack) -> None:
    """Add a commit to a copy, and create the copy if needed. Holds a lock.

    Raises RepositoryError.
    """
    copy.mkdir(parents=True, exist_ok=True)
    with locked(copy / "patchshot.lock", wait=True):
        if not (copy / "HEAD").is_file():
            _git(copy, "init", "--quiet", "--bare", str(copy))
        if pack.shallow:
            ends = {*pack.shallow, *_lines(copy / "shallow")}
            (copy / "shallow").write_text("".join(f"{end}\n" for end in sorted(ends)))
        _git(copy, "index-pack", "--stdin", stdin=pack.data)
        _git(copy, "update-ref", f"{_WANTED}/{commit}", commit)


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.is_file() else []


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    command = ["git", *git_options(), f"--git-dir={folder}", *arguments]
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            cwd=folder,
            env=dict(git_environment()),
            timeout=_GIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RepositoryError(f"git {arguments[0]} took over {_GIT_SECONDS:.0f} s") from None
    except OSError as error:
        raise RepositoryError(f"git cannot be started ({error}); install it") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RepositoryError(f"git {arguments[0]} has failed ({said[-1] if said else 'silently'})")
    return done.stdout
