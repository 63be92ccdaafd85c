"""Finds the git directory of an untrusted repository, and looks at its files before git opens them.

Git opens everything that has the name of one of its files. A FIFO would block it for ever, and a
device or a sparse file would fill its memory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.small_files import read_small_file
from sandbox.types import WorkspaceError

# Git reads a loose reference as a whole. It holds an object id or the name of another reference.
_REFERENCE_BYTES = 4096

# Git follows alternates of alternates to this depth (object-file.c).
_ALTERNATES_DEPTH = 5

# References have names with slashes; nobody uses so many of them.
_FOLDER_DEPTH = 64


@dataclass(frozen=True, slots=True)
class GitDirectory:
    """Where git keeps a repository (gitrepository-layout(5)).

    `own` has HEAD and the index. `common` has objects, references and configuration; it differs
    from `own` in a linked work tree only.
    """

    own: Path
    common: Path

    @property
    def objects(self) -> Path:
        """The object store."""
        return self.common / "objects"


def find_git_directory(repository: Path) -> GitDirectory:
    """Find the git directory of a work tree, a linked work tree, a submodule or a bare repository.

    Raises WorkspaceError when `repository` is none of these.
    """
    entry = repository / ".git"
    own = entry
    if not entry.is_dir():
        link = read_control_file(entry)  # "gitfile" in gitglossary(7)
        own = repository / (_line(link).removeprefix("gitdir:").strip() if link else "")
    named = read_control_file(own / "commondir")
    found = GitDirectory(own, own if named is None else own / _line(named))
    if not found.objects.is_dir():
        raise WorkspaceError(f"not a git repository: {repository}; name its top directory")
    return found


def read_control_file(path: Path, most: int = _REFERENCE_BYTES) -> bytes | None:
    """Read a file of a git directory; None where there is none.

    Raises WorkspaceError for anything but a regular file of at most `most` bytes.
    """
    try:
        data = read_small_file(path, most)
    except OSError as error:
        raise WorkspaceError(f"{path}: {error.strerror}; git's own are smaller") from None
    if data is None and os.path.lexists(path):
        raise WorkspaceError(f"{path}: a link, no regular file, or closed to this user; see to it")
    return data


def check_objects(objects: Path) -> None:
    """Check that git can open every file of an object store and of its alternates.

    Raises WorkspaceError otherwise.
    """
    known: set[Path] = set()
    waiting = [objects]
    for _ in range(_ALTERNATES_DEPTH + 1):
        following: list[Path] = []
        for store in waiting:
            real = store.resolve()
            if real not in known and real.is_dir():
                known.add(real)
                check_files(real)
                following += _alternates(real)
        waiting = following


def check_references(common: Path) -> None:
    """Check the loose references and reflogs of a repository. Raises WorkspaceError."""
    check_files(common / "refs", most=_REFERENCE_BYTES)
    check_files(common / "logs")
    check_files(common / "reftable")


def check_files(folder: Path, *, most: int | None = None, depth: int = _FOLDER_DEPTH) -> None:
    """Check that a folder holds, at any depth, regular files of at most `most` bytes only.

    A link to such a file may be there too. Raises WorkspaceError otherwise.
    """
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and depth:
                    check_files(Path(entry.path), most=most, depth=depth - 1)
                elif most is not None or not entry.is_file(follow_symlinks=False):
                    _check_file(entry, most)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise WorkspaceError(f"{error.filename}: {error.strerror}") from None


def _check_file(entry: os.DirEntry[str], most: int | None) -> None:
    try:
        state = entry.stat()
    except FileNotFoundError:  # a link that leads nowhere, or a lock that is gone by now
        return
    if not stat.S_ISREG(state.st_mode):
        raise WorkspaceError(f"{entry.path}: no regular file; remove it, then run git fsck")
    if most is not None and state.st_size > most:
        raise WorkspaceError(f"{entry.path}: larger than {most:,} bytes; git's own are smaller")


def _alternates(objects: Path) -> Iterator[Path]:
    """Yield the object stores that a store names. Git ignores lines that begin with `#`."""
    data = read_control_file(objects / "info" / "alternates", 1 << 20) or b""
    for line in data.splitlines():
        if line and not line.startswith(b"#"):
            yield objects / os.fsdecode(line)


def _line(data: bytes) -> str:
    return os.fsdecode(data).strip()
