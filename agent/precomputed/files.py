"""The folder of vectors: its names, and reading of what lies in it without being led out of it.

    <id> or <id>.json    a JSON array of numbers: the vector
    <id>.meta.json       optional: an object with `tags` (list of strings), `text` or `text_file`
                         (a path below the folder), and whatever else belongs to it

Names that begin with a dot, and folders, are none of it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.errors import SemanticIndexError

META = ".meta.json"
VECTOR = ".json"

MAX_BYTES = 4_000_000
"""Of one file: a vector of 65,536 numbers, written out at length, takes two thirds of it."""

MAX_ID_BYTES = 200  # file systems take names of 255 bytes, endings included


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why something is not used, as a clause."""

    reason: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as it was listed. `size` (bytes) and `changed` (ns) are those of what it leads to."""

    name: str
    size: int
    changed: int
    linked: bool

    @property
    def identifier(self) -> str:
        """The id of the vector that is in it."""
        return self.name.removesuffix(VECTOR)


@dataclass(frozen=True, slots=True)
class Folder:
    """An open folder. `handle` is its descriptor, `root` where it really is."""

    path: Path
    root: Path
    handle: int

    def read(self, file: Listed) -> bytes | Invalid:
        """The file's bytes, or why not: a link that leads out, no regular file, too large."""
        if not file.linked:
            return _read(file.name, self.handle)
        target = _resolved(self.root / file.name)
        if isinstance(target, Invalid):
            return target
        if not target.is_relative_to(self.root):
            return Invalid("a link out of the folder")
        if not target.exists():
            return Invalid("a link to nothing")
        return _read(str(target), None)


def _unreadable(path: Path, error: OSError) -> SemanticIndexError:
    advice = "give the folder of vectors"
    if isinstance(error, PermissionError):
        advice = "let yourself read and enter it: chmod u+rx"
    return SemanticIndexError(
        f"{in_one_line(str(path))}: cannot be read ({error.strerror}); {advice}"
    )


@contextmanager
def open_folder(path: Path) -> Iterator[Folder]:
    """The folder, for the block. Raises SemanticIndexError where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        yield Folder(path, path.resolve(), handle)
    finally:
        os.close(handle)


def in_one_line(name: str, limit: int = 300) -> str:
    """A name for people, whatever is in it: escapes for what cannot be printed, and an end."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def listed(folder: Folder) -> list[Listed]:
    """Its files by name; also links to what is not there, so that they are spoken of.

    Raises SemanticIndexError where the files may be listed but not looked at.
    """
    try:
        return _listed(folder)
    except PermissionError as error:
        raise _unreadable(folder.path, error) from None


def _listed(folder: Folder) -> list[Listed]:
    found = []
    with os.scandir(folder.handle) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                about = entry.stat()
            except OSError:  # a link to nothing, or to itself
                about = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(about.st_mode):
                continue
            found.append(Listed(entry.name, about.st_size, about.st_mtime_ns, entry.is_symlink()))
    return sorted(found, key=lambda file: file.name)


def read_below(root: Path, relative: str) -> bytes | Invalid:
    """A file below `root`, by a path as a stranger wrote it."""
    if not relative or "\0" in relative or Path(relative).is_absolute():
        return Invalid("not a path below the folder")
    target = _resolved(root / relative)
    if isinstance(target, Invalid):
        return target
    if not target.is_relative_to(root.resolve()):
        return Invalid("a path out of the folder")
    return _read(str(target), None)


def _resolved(path: Path) -> Path | Invalid:
    """Where a path really leads, there or not; Invalid for links that lead to themselves."""
    loop = Invalid("a link that leads to itself")
    try:
        found = path.resolve()
    except RuntimeError:
        return loop
    except OSError as error:
        return loop if error.errno == errno.ELOOP else Invalid(f"cannot be read ({error.strerror})")
    return loop if found.is_symlink() else found  # as Python 3.13 leaves a loop


def _read(name: str, folder: int | None) -> bytes | Invalid:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block
    try:
        handle = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        return Invalid(f"cannot be read ({error.strerror})")
    with os.fdopen(handle, "rb") as file:
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return Invalid("not a regular file")
            data = file.read(MAX_BYTES + 1)
        except OSError as error:
            return Invalid(f"cannot be read ({error.strerror})")
    return Invalid(f"more than {MAX_BYTES:,} bytes") if len(data) > MAX_BYTES else data


def why_no_id(identifier: str) -> str | None:
    """What keeps a text from being an id that can be written; None where nothing does."""
    try:
        size = len(identifier.encode("utf-8"))
    except UnicodeEncodeError:
        return "it is not text"
    if not 1 <= size <= MAX_ID_BYTES:
        return f"it has {size} bytes; 1 to {MAX_ID_BYTES} are possible"
    if "/" in identifier or identifier.startswith(".") or not identifier.isprintable():
        return "a slash, a dot at the beginning and control characters cannot be in a file's name"
    if identifier.endswith(META.removesuffix(VECTOR)):
        return "its file would be the metadata of another one"
    return None
