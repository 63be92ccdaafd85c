"""What is being written, what was written, and what it replaced: one file for each write.

The suffix of the file is its state, so that a change of state is one rename, which is atomic and
needs no space. The journal lies in the user's state folder, outside of any work tree.

The operations that change the disk, one method each. Tests pass one that fails or kills.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.shared.files import locked

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

    def link(self, folder: int, name: str, other: str) -> None:
        """Give a file a second name."""
        os.link(name, other, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)

    def rename(self, folder: int, name: str, to: str) -> None:
        """Rename a file; a file that has the new name is replaced."""
        os.rename(name, to, src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self, folder: int, name: str) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=folder)

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=folder)


KEPT_RECORDS = 100
"""Writes that can be taken back. A patch has a few files below 1 MB each, so 100 take little."""

_FILE_NAME = re.compile(r"(\d{6})-[0-9a-f]{8}\.[a-z]+")


class WriteState(enum.StrEnum):
    """How far a write has come. `APPLIED` is the only one that an interruption does not leave."""

    STAGING = "staging"  # new contents are written beside the files; no file has changed
    COMMITTING = "committing"  # all new contents are on the disk; files are replaced
    REVERTING = "reverting"  # replaced files are taken back
    CLEANING = "cleaning"  # all files are replaced; temporary names are removed
    APPLIED = "applied"


class WrittenFile(BaseModel):
    """One file. `before` is its old content and `mode` its old permissions; None: there was none.

    `after` is the SHA-256 of the new content; None: the file is deleted.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64"
    )

    path: str
    before: bytes | None
    after: str | None
    mode: int | None


class WriteRecord(BaseModel):
    """One write. `run` is the run that it came from, `undoes` the record that it takes back.

    `made` are folders that the write makes, outer ones first; `emptied` are folders that it removes
    if nothing is left in them, inner ones first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str
    files: tuple[WrittenFile, ...]
    run: str = ""
    undoes: str = ""
    made: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record in the journal. `name` is unique, and later names are greater."""

    name: str
    state: WriteState
    record: WriteRecord

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.{self.state.value}"


class WriteJournal:
    """The records in one folder. All methods but the constructor and `pending` raise OSError."""

    def __init__(self, folder: Path, operations: FileOperations) -> None:
        self.folder = folder
        self._operations = operations

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and keep other processes from writing meanwhile."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self.folder / "lock", wait=True):
            yield

    def begin(self, record: WriteRecord) -> StoredRecord:
        """Store a record before anything is changed; it may be needed after a crash."""
        numbers = [int(name[:6]) for name in self._files()]
        name = f"{max(numbers, default=0) + 1:06d}-{secrets.token_hex(4)}"
        stored = StoredRecord(name, WriteState.STAGING, record)
        with self._opened() as folder:
            descriptor = self._operations.create(folder, stored.file, 0o600)
            try:
                self._operations.write(descriptor, record.model_dump_json().encode())
                self._operations.sync(descriptor)
            except OSError:
                self._operations.remove(folder, stored.file)
                raise
            finally:
                os.close(descriptor)
            self._operations.sync(folder)
        return stored

    def move(self, stored: StoredRecord, state: WriteState) -> StoredRecord:
        """Set the state of a record."""
        moved = replace(stored, state=state)
        with self._opened() as folder:
            self._operations.rename(folder, stored.file, moved.file)
            self._operations.sync(folder)
        return moved

    def drop(self, stored: StoredRecord) -> None:
        """Remove a record."""
        with self._opened() as folder, contextlib.suppress(FileNotFoundError):
            self._operations.remove(folder, stored.file)

    def keep_newest(self) -> None:
        """Remove the oldest records, so that the folder does not grow for ever."""
        for name in self._files()[:-KEPT_RECORDS]:
            (self.folder / name).unlink(missing_ok=True)

    def pending(self, root: Path) -> tuple[StoredRecord, ...]:
        """Return the records of writes into `root` that were interrupted, oldest first."""
        with contextlib.suppress(OSError):
            names = [name for name in self._files() if not name.endswith(WriteState.APPLIED.value)]
            found = [stored for name in names if (stored := self._read(name))]
            return tuple(stored for stored in found if stored.record.root == str(root))
        return ()

    def applied(self) -> Iterator[StoredRecord]:
        """Yield the records of what was written, newest first."""
        for name in reversed(self._files()):
            if name.endswith(WriteState.APPLIED.value) and (stored := self._read(name)):
                yield stored

    def named(self, name: str) -> StoredRecord | None:
        """Return the applied record of that name, or None."""
        return self._read(f"{name}.{WriteState.APPLIED.value}")

    def _files(self) -> list[str]:
        try:
            names = os.listdir(self.folder)  # noqa: PTH208  (names are what is compared)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if _FILE_NAME.fullmatch(name))

    def _read(self, file: str) -> StoredRecord | None:
        """Return a record; None if its process died before it was complete: nothing was done."""
        name, _, state = file.partition(".")
        try:
            data = (self.folder / file).read_bytes()
            return StoredRecord(name, WriteState(state), WriteRecord.model_validate_json(data))
        except (FileNotFoundError, ValidationError, ValueError):
            return None

    @contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)
