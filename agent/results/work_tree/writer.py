"""Carries out one recorded write in a work tree, in steps that can be repeated after a crash.

New contents are written beside the files, under temporary names, and flushed. Then each file is
replaced by one rename. Links are never followed: each step opens the folders from the root anew.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.repository import Kind, read_files
from agent.results.work_tree.journal import FileOperations, StoredRecord, WrittenFile
from sandbox import open_parent

MOST_BYTES = 64 << 20
"""A file that has grown beyond this is not read, and counts as changed."""


class FileRefused(Exception):
    """A file of the work tree cannot be written or is not what it should be."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """One file to write. `before` is what is on the disk, `after` what shall be; None: no file.

    `mode` are the permissions of a new file; None: as the umask says, executable or not. A file
    that is replaced keeps its own.
    """

    path: str
    before: bytes | None
    after: bytes | None
    executable: bool = False
    mode: int | None = None


class Position(enum.Enum):
    """Where a file stands in the write. `EDITED_*`: the user edited it before or after its turn."""

    WAITING = "waiting"
    DONE = "done"
    EDITED_BEFORE = "edited-before"
    EDITED_AFTER = "edited-after"


def digest_of(content: bytes | None) -> str | None:
    """Return the SHA-256 of a content; None for None."""
    return None if content is None else hashlib.sha256(content).hexdigest()


def read_content(root: Path, path: str) -> bytes | None:
    """Return what a file holds, None if there is none. Raises FileRefused for anything else."""
    name = path.encode("utf-8", "surrogateescape")
    with refusing(path):
        found = read_files(root, [name], limit=MOST_BYTES)[name]
    if found.kind is Kind.ABSENT:
        return None
    if found.kind is not Kind.FILE:
        raise FileRefused(path, _KINDS[found.kind])
    if found.data is None:
        raise FileRefused(path, "is too large now")
    return found.data


_KINDS = {
    Kind.SYMLINK: "is a link now",
    Kind.BEHIND_SYMLINK: "is behind a link now",
    Kind.DIRECTORY: "is a folder now",
    Kind.SPECIAL: "is no regular file now",
    Kind.UNREADABLE: "cannot be read",
}


def permissions(root: Path, path: str) -> int | None:
    """Return the permission bits of a file, None if there is none. Raises FileRefused."""
    with refusing(path), contextlib.suppress(FileNotFoundError), open_parent(root, path) as place:
        folder, name = place
        return _bits(os.stat(name, dir_fd=folder, follow_symlinks=False))
    return None


def missing_folders(root: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that the paths need and that do not exist, outer ones first."""
    needed = {folder for path in paths for folder in parent_folders(path)}
    names = {folder.encode("utf-8", "surrogateescape"): folder for folder in needed}
    found = read_files(root, names, limit=0)
    absent = (folder for name, folder in names.items() if found[name].kind is Kind.ABSENT)
    return tuple(sorted(absent, key=lambda folder: (folder.count("/"), folder)))


def parent_folders(path: str) -> tuple[str, ...]:
    """Return all folders above a path, inner ones first: a/b/c -> a/b, a."""
    parts = path.split("/")[:-1]
    return tuple("/".join(parts[:depth]) for depth in range(len(parts), 0, -1))


@contextmanager
def refusing(path: str) -> Iterator[None]:
    """Turn an OSError into a FileRefused about `path`."""
    try:
        yield
    except OSError as error:
        raise FileRefused(path, error.strerror or str(error)) from None


class TreeWriter:
    """Writes into one work tree. Methods raise FileRefused."""

    def __init__(self, root: Path, operations: FileOperations) -> None:
        self._root = root
        self._operations = operations

    def stage(self, stored: StoredRecord, writes: Sequence[PlannedWrite]) -> None:
        """Write all new contents beside the files, and keep the old files under a second name."""
        for path in stored.record.made:
            with refusing(path), open_parent(self._root, path) as (parent, name):
                self._operations.make_folder(parent, name)
                self._adopt_folder(parent, name)
                self._operations.sync(parent)
        for number, write in enumerate(writes):
            with refusing(write.path), open_parent(self._root, write.path) as (folder, name):
                if write.after is not None:
                    self._stage(folder, name, _new(stored, number), write)
                if write.after is not None and write.before is not None:
                    with contextlib.suppress(OSError):  # the record holds the content too
                        self._operations.link(folder, name, _old(stored, number))
                self._operations.sync(folder)

    def commit(self, stored: StoredRecord) -> None:
        """Replace all files that wait for it. A file that has changed ends it with FileRefused."""
        for number, file in enumerate(stored.record.files):
            position = self.position(stored, number)
            if position is Position.EDITED_BEFORE:
                raise FileRefused(file.path, "has changed while the patch was being written")
            if position is Position.WAITING:
                self._replace(stored, number, file)

    def position(self, stored: StoredRecord, number: int) -> Position:
        """Return where a file stands; its content decides, not what the journal says."""
        file = stored.record.files[number]
        try:
            content = read_content(self._root, file.path)
        except FileRefused:
            done = self._had_its_turn(stored, number, file)
            return Position.EDITED_AFTER if done else Position.EDITED_BEFORE
        if digest_of(content) == file.after:
            return Position.DONE
        if content == file.before:
            return Position.WAITING
        done = self._had_its_turn(stored, number, file)
        return Position.EDITED_AFTER if done else Position.EDITED_BEFORE

    def can_finish(self, stored: StoredRecord) -> bool:
        """Whether `commit` can replace all files that still wait."""
        for number, file in enumerate(stored.record.files):
            position = self.position(stored, number)
            if position is Position.EDITED_BEFORE:
                return False
            staged = file.after is None or self._exists(file.path, _new(stored, number))
            if position is Position.WAITING and not staged:
                return False
        return True

    def roll_back(self, stored: StoredRecord) -> tuple[str, ...]:
        """Take back the files that were replaced, and return those that were edited since."""
        edited = []
        for number, file in reversed(list(enumerate(stored.record.files))):
            position = self.position(stored, number)
            if position is Position.DONE:
                self._restore(stored, number, file)
            if position is Position.EDITED_AFTER:
                edited.append(file.path)
        self._remove_temporary(stored)
        self._remove_empty(stored.record.made[::-1])
        return tuple(sorted(edited))

    def clean(self, stored: StoredRecord) -> None:
        """Remove the temporary names, and the folders that deletions have emptied."""
        self._remove_temporary(stored)
        self._remove_empty(stored.record.emptied)

    def _stage(self, folder: int, name: str, temporary: str, write: PlannedWrite) -> None:
        mode, status = write.mode, None
        if write.before is not None:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            mode = _bits(status)
        private = 0o600 if mode is not None else 0o777 if write.executable else 0o666
        assert write.after is not None
        descriptor = self._operations.create(folder, temporary, private)
        try:
            self._operations.write(descriptor, write.after)
            _give_to(descriptor, status or os.fstat(folder))
            if mode is not None:
                os.fchmod(descriptor, mode)
            self._operations.sync(descriptor)
        finally:
            os.close(descriptor)

    def _replace(self, stored: StoredRecord, number: int, file: WrittenFile) -> None:
        with refusing(file.path), open_parent(self._root, file.path) as (folder, name):
            if file.after is None:
                self._operations.rename(folder, name, _old(stored, number))
            else:
                self._operations.rename(folder, _new(stored, number), name)
            self._operations.sync(folder)

    def _restore(self, stored: StoredRecord, number: int, file: WrittenFile) -> None:
        with refusing(file.path), open_parent(self._root, file.path) as (folder, name):
            if file.before is None:
                self._operations.remove(folder, name)
                self._operations.sync(folder)
                return
            old = _old(stored, number)
            if not self._holds(file.path, old, file.before):
                with contextlib.suppress(FileNotFoundError):
                    self._operations.remove(folder, old)
                content = PlannedWrite(file.path, None, file.before, mode=file.mode)
                self._stage(folder, name, old, content)
            self._operations.rename(folder, old, name)
            self._operations.sync(folder)

    def _had_its_turn(self, stored: StoredRecord, number: int, file: WrittenFile) -> bool:
        """Whether a file was replaced, which uses up its new content, or deleted, which gives it
        its second name. A folder that cannot be opened was not there in its turn either.
        """
        if file.after is None:
            return self._exists(file.path, _old(stored, number)) is True
        return self._exists(file.path, _new(stored, number)) is False

    def _exists(self, path: str, sibling: str) -> bool | None:
        """Whether there is a file `sibling` beside `path`; None if its folder cannot be opened."""
        with contextlib.suppress(OSError), open_parent(self._root, path) as (folder, _):
            try:
                os.stat(sibling, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return False
            return True
        return None

    def _holds(self, path: str, sibling: str, content: bytes) -> bool:
        folder, slash, _ = path.rpartition("/")
        try:
            return read_content(self._root, f"{folder}{slash}{sibling}") == content
        except FileRefused:
            return False

    def _remove_temporary(self, stored: StoredRecord) -> None:
        for number, file in enumerate(stored.record.files):
            for temporary in (_new(stored, number), _old(stored, number)):
                with (
                    refusing(file.path),
                    contextlib.suppress(FileNotFoundError, NotADirectoryError),
                    open_parent(self._root, file.path) as (folder, _),
                ):
                    self._operations.remove(folder, temporary)

    def _remove_empty(self, folders: Sequence[str]) -> None:
        for path in folders:
            with contextlib.suppress(OSError), open_parent(self._root, path) as (folder, name):
                self._operations.remove_folder(folder, name)

    def _adopt_folder(self, parent: int, name: str) -> None:
        made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            _give_to(made, os.fstat(parent))
        finally:
            os.close(made)


def _new(stored: StoredRecord, number: int) -> str:
    return f".patchshot-{stored.name}-{number}.new"


def _old(stored: StoredRecord, number: int) -> str:
    return f".patchshot-{stored.name}-{number}.old"


def _bits(status: os.stat_result) -> int:
    """Return the permissions without setuid, setgid and sticky: new content must not get these."""
    return stat.S_IMODE(status.st_mode) & 0o777


def _give_to(descriptor: int, owner: os.stat_result) -> None:
    """Give an entry to the owner of another one, which only root can and must do."""
    if os.geteuid() == 0:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
