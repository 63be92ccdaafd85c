"""Carries out one recorded write into a work tree, file by file, and takes it back.

Links are never followed: each step opens the folders from the root anew.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from agent.repository import Kind, read_files
from agent.types import FileChange
from sandbox import open_parent


@dataclass(frozen=True, slots=True)
class WriteConflict:
    """Why a file could not be written. `reason` is a predicate, such as "is a link now"."""

    path: str
    reason: str


class FileRefused(Exception):
    """A file of the work tree cannot be written or is not what it should be."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.conflict = WriteConflict(path, reason)


class WrittenFile(BaseModel, frozen=True, ser_json_bytes="base64", val_json_bytes="base64"):
    """One file. `before` is its old content and `mode` its old permissions; None: there was none.

    `after` is the SHA-256 of the new content; None: the file is deleted.
    """

    path: str
    before: bytes | None
    after: str | None
    mode: int | None


class WriteRecord(BaseModel, frozen=True):
    """One write of the run `run`. `made` are folders that it makes, outer ones first."""

    root: str
    files: tuple[WrittenFile, ...]
    run: str = ""
    made: tuple[str, ...] = ()


class TreeWriter:
    """Carries out one recorded write, in steps that can be repeated. Methods raise FileRefused."""

    def __init__(self, name: str, record: WriteRecord, operations: FileOperations) -> None:
        self.name = name
        self.record = record
        self.replaced: list[str] = []
        self._root = Path(record.root)
        self._operations = operations

    def write(self, writes: Sequence[FileChange]) -> None:
        """Write all contents under temporary names and flush them, then replace all files."""
        for path in self.record.made:
            self._make_folder(path)
        for number, write in enumerate(writes):
            if write.after is not None:
                mode = 0o777 if write.executable else 0o666
                self._write_beside(number, write.path, write.after, mode)
        for number, file in enumerate(self.record.files):
            if read_content(self._root, file.path) != file.before:
                raise FileRefused(file.path, "has changed while the patch was being written")
            self._replace(number, file.path, delete=file.after is None)
            self.replaced.append(file.path)
        deleted = [file.path for file in self.record.files if file.after is None]
        emptied = {folder for path in deleted for folder in parent_folders(path)}
        self._remove_empty(sorted(emptied, key=lambda folder: (-folder.count("/"), folder)))

    def take_back(self) -> tuple[str, ...]:
        """Restore the files that were replaced, and return those with another content now."""
        self._remove_temporary()
        edited, replaced = [], []
        for number, file in enumerate(self.record.files):
            try:
                content = read_content(self._root, file.path)
            except FileRefused:
                edited.append(file.path)
                continue
            if content != file.before and digest_of(content) == file.after:
                replaced.append((number, file))
            elif content != file.before:
                edited.append(file.path)
        for number, file in replaced:
            if file.before is not None:
                for folder in reversed(parent_folders(file.path)):
                    self._make_folder(folder)
                self._write_beside(number, file.path, file.before, file.mode or 0o666, exact=True)
        for number, file in reversed(replaced):
            self._replace(number, file.path, delete=file.before is None)
        self._remove_empty(self.record.made[::-1])
        return tuple(edited)

    def _make_folder(self, path: str) -> None:
        with _refusing(path), open_parent(self._root, path) as (parent, name):
            try:
                self._operations.make_folder(parent, name)
            except FileExistsError:
                return
            made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            try:
                _give_to(made, os.fstat(parent))
            finally:
                os.close(made)
            self._operations.sync(parent)

    def _write_beside(
        self, number: int, path: str, content: bytes, mode: int, *, exact: bool = False
    ) -> None:
        """Write a content to its temporary name, with what the file that is there has.

        Without such a file it gets `mode`, less the umask unless `exact`.
        """
        with _refusing(path), open_parent(self._root, path) as (folder, name):
            old: int | None = None
            with contextlib.suppress(FileNotFoundError):
                old = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                mode, exact = _bits(os.fstat(old)), True
            new = self._operations.create(folder, self._temporary(number), 0o600 if exact else mode)
            try:
                self._operations.write(new, content)
                _give_to(new, os.fstat(folder if old is None else old))
                if old is not None:
                    _copy_attributes(path, old, new)
                if exact:
                    os.fchmod(new, mode)
                self._operations.sync(new)
            finally:
                os.close(new)
                if old is not None:
                    os.close(old)
            self._operations.sync(folder)

    def _replace(self, number: int, path: str, *, delete: bool) -> None:
        with _refusing(path), open_parent(self._root, path) as (folder, name):
            if delete:
                self._operations.remove(folder, name)
            else:
                self._operations.rename(folder, self._temporary(number), name)
            self._operations.sync(folder)

    def _remove_temporary(self) -> None:
        for number, file in enumerate(self.record.files):
            with (
                _refusing(file.path),
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                open_parent(self._root, file.path) as (folder, _),
            ):
                self._operations.remove(folder, self._temporary(number))

    def _remove_empty(self, folders: Sequence[str]) -> None:
        for path in folders:
            with contextlib.suppress(OSError), open_parent(self._root, path) as (folder, name):
                self._operations.remove_folder(folder, name)

    def _temporary(self, number: int) -> str:
        return f".patchshot-{self.name}-{number}.new"


# ---- files of the work tree

# A file that has grown beyond this is not read, and counts as changed.
_MOST_BYTES = 64 << 20

_KINDS = {
    Kind.SYMLINK: "is a link now",
    Kind.BEHIND_SYMLINK: "is behind a link now",
    Kind.DIRECTORY: "is a folder now",
    Kind.SPECIAL: "is no regular file now",
    Kind.UNREADABLE: "cannot be read",
}


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileRefused(path, error.strerror or str(error)) from None


def digest_of(content: bytes | None) -> str | None:
    """Return the SHA-256 in hex, None for no file."""
    return None if content is None else hashlib.sha256(content).hexdigest()


def read_content(root: Path, path: str) -> bytes | None:
    """Return what a file holds, None if there is none. Raises FileRefused for anything else."""
    name = path.encode("utf-8", "surrogateescape")
    with _refusing(path):
        file = read_files(root, [name], limit=_MOST_BYTES)[name]
    if file.kind is Kind.ABSENT:
        return None
    if file.kind is not Kind.FILE:
        raise FileRefused(path, _KINDS[file.kind])
    if file.data is None:
        raise FileRefused(path, "is too large now")
    return file.data


def permissions(root: Path, path: str) -> int | None:
    """Return the permission bits of a file, None if there is none.

    Raises FileRefused for a file that would lose more than its content by being replaced.
    """
    with _refusing(path), contextlib.suppress(FileNotFoundError), open_parent(root, path) as place:
        folder, name = place
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if status.st_nlink > 1:
            raise FileRefused(path, "has other names (hard links), which would keep the old text")
        if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            raise FileRefused(path, "is setuid or setgid, which new content must not be")
        return _bits(status)
    return None


def _copy_attributes(path: str, old: int, new: int) -> None:
    """Copy extended attributes, such as access lists; the kernel sets its own (`security.`)."""
    for name in os.listxattr(old):
        if name == "security.capability":
            raise FileRefused(path, "has capabilities, which new content must not have")
        if not name.startswith("security."):
            os.setxattr(new, name, os.getxattr(old, name))


def parent_folders(path: str) -> tuple[str, ...]:
    """Return all folders above a path: a/b/c -> a/b, a."""
    parts = path.split("/")[:-1]
    return tuple("/".join(parts[:depth]) for depth in range(len(parts), 0, -1))


def _bits(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode) & 0o777


def _give_to(descriptor: int, owner: os.stat_result) -> None:
    """Give an entry to the owner of another one, which only root can and must do."""
    if os.geteuid() == 0:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


# ---- the operations that change the disk; tests pass some that fail or kill

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# File systems that cannot flush a folder say so in these ways.
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})


class FileOperations:
    """Names are relative to `folder`, the descriptor of an open folder. Methods raise OSError."""

    def make_folder(self, folder: int, name: str) -> None:
        """Make a folder; the umask decides its permissions."""
        os.mkdir(name, dir_fd=folder)

    def create(self, folder: int, name: str, mode: int) -> int:
        """Create a file, which must not exist, and return its descriptor."""
        return os.open(name, _NEW_FILE, mode, dir_fd=folder)

    def write(self, descriptor: int, data: bytes) -> None:
        """Write all of `data`."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def sync(self, descriptor: int) -> None:
        """Flush a file or a folder to the disk."""
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise

    def rename(self, folder: int, name: str, to: str) -> None:
        """Rename a file; a file that has the new name is replaced."""
        os.rename(name, to, src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self, folder: int, name: str) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=folder)

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=folder)
