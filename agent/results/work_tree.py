"""Writes changed files into the user's work tree, all or none, and takes them back.

A record with the old contents is stored in a journal outside of the work tree before anything is
changed. If a write fails or is killed, the record takes it back; otherwise it is for `agent undo`.
Links are never followed: each step opens the folders from the root anew.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import RepositoryError
from agent.repository import Kind, merge_texts, read_files
from agent.shared.files import locked, make_private_folder
from agent.types import FileChange
from sandbox import open_parent


@dataclass(frozen=True, slots=True)
class WriteConflict:
    """Why a file could not be written. `reason` is a predicate, such as "is a link now"."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The files that hold the new content now, in order of path, or why none does.

    `merged` are those of them in which edits of the user were kept. Neither `written` nor
    `conflicts`: all files held the new content already. Both: a failed write could not be taken
    back wholly, and the next call tries again.
    """

    written: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    conflicts: tuple[WriteConflict, ...] = ()


def apply_changes(
    changes: Sequence[FileChange],
    root: Path,
    journal: Path,
    *,
    run: str = "",
    operations: FileOperations | None = None,
) -> WriteOutcome:
    """Write all changes into the work tree at `root`, or none.

    If a file on disk differs from `before` of its change, the two are merged where they do not
    overlap. `journal` is the folder of the journal; `run` names the write for `undo_changes`.
    """
    records = _Journal(journal, operations or FileOperations())
    try:
        with records.locked():
            _take_back_all(root, records)
            return _apply(changes, root, records, run)
    except OSError as error:
        return WriteOutcome(conflicts=(WriteConflict(str(journal), error.strerror or str(error)),))


def undo_changes(
    root: Path, journal: Path, *, run: str = "", operations: FileOperations | None = None
) -> WriteOutcome:
    """Take back all that the last write into `root`, or that of `run`, has written, or nothing.

    A file that has changed since is a conflict. Raises RepositoryError if there is no such write.
    """
    records = _Journal(journal, operations or FileOperations())
    try:
        with records.locked():
            _take_back_all(root, records)
            return _undo(_find(root, run, records), root, records)
    except OSError as error:
        return WriteOutcome(conflicts=(WriteConflict(str(journal), error.strerror or str(error)),))


def finish_interrupted(
    root: Path, journal: Path, operations: FileOperations | None = None
) -> tuple[str, ...]:
    """Take back what killed processes left half-written; return what was done, in words.

    Costs the listing of one folder if there is nothing to do. Never raises OSError.
    """
    records = _Journal(journal, operations or FileOperations())
    if not records.pending(root):
        return ()
    try:
        with records.locked():
            return _take_back_all(root, records)
    except OSError as error:
        return (f"an interrupted write could not be taken back: {journal}: {error.strerror}",)


# ---- planning


class FileRefused(Exception):
    """A file of the work tree cannot be written or is not what it should be."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.conflict = WriteConflict(path, reason)


@dataclass(frozen=True, slots=True)
class _PlannedWrite:
    """One file to write. `before` is what is on the disk, `after` what shall be; None: no file.

    `mode` are the permissions of a new file; None: as the umask says, executable or not.
    """

    path: str
    before: bytes | None
    after: bytes | None
    executable: bool = False
    mode: int | None = None


def _apply(changes: Sequence[FileChange], root: Path, records: _Journal, run: str) -> WriteOutcome:
    writes, merged, conflicts = [], [], []
    for change in sorted(changes, key=lambda change: change.path):
        try:
            write = _planned(change, root)
        except FileRefused as refused:
            conflicts.append(refused.conflict)
            continue
        if write.before != write.after:
            writes.append(write)
            if write.after != change.after:
                merged.append(write.path)
    if conflicts:
        return WriteOutcome(conflicts=tuple(conflicts))
    deleted = [write.path for write in writes if write.after is None]
    emptied = {folder for path in deleted for folder in _parent_folders(path)}
    inner_first = tuple(sorted(emptied, key=lambda folder: (-folder.count("/"), folder)))
    plan = _WriteRecord(root=str(root), files=(), run=run, emptied=inner_first)
    return _carry_out(plan, writes, tuple(merged), records)


def _planned(change: FileChange, root: Path) -> _PlannedWrite:
    """Return what to write for a change. Raises FileRefused if it does not fit the disk."""
    now = _read_content(root, change.path)
    after = change.after
    if now not in (change.before, change.after):
        after = _merged(change, now)
    return _PlannedWrite(change.path, now, after, executable=change.executable)


def _merged(change: FileChange, now: bytes | None) -> bytes:
    from agent.patching import check_syntax  # slow to import, and seldom needed

    if change.before is None:
        raise FileRefused(change.path, "exists now, with another content")
    if now is None:
        raise FileRefused(change.path, "is gone")
    if change.after is None:
        raise FileRefused(change.path, "has changed, and the patch deletes it")
    merged = merge_texts(now, change.before, change.after)
    if merged is None:
        raise FileRefused(change.path, "has changed in the lines that the patch changes")
    if check_syntax((FileChange(change.path, now, merged),)):
        raise FileRefused(change.path, "has changed, and does not parse after a merge")
    return merged


def _find(root: Path, run: str, records: _Journal) -> _StoredRecord:
    for stored in records.applied():
        if stored.record.root == str(root) and run in ("", stored.record.run):
            return stored
    what = f"run {run} has written nothing into it" if run else "no write into it is recorded"
    raise RepositoryError(f"{root}: there is nothing to undo ({what})")


def _undo(stored: _StoredRecord, root: Path, records: _Journal) -> WriteOutcome:
    writes, conflicts = [], []
    for file in stored.record.files:
        try:
            now = _read_content(root, file.path)
        except FileRefused as refused:
            conflicts.append(refused.conflict)
            continue
        if _digest_of(now) == file.after:
            writes.append(_PlannedWrite(file.path, now, file.before, mode=file.mode))
        else:
            conflicts.append(WriteConflict(file.path, "has changed since it was written"))
    if conflicts:
        return WriteOutcome(conflicts=tuple(conflicts))
    emptied = stored.record.made[::-1]
    plan = _WriteRecord(root=str(root), files=(), undoes=stored.name, emptied=emptied)
    return _carry_out(plan, writes, (), records)


# ---- carrying out


def _carry_out(
    plan: _WriteRecord, writes: Sequence[_PlannedWrite], merged: tuple[str, ...], records: _Journal
) -> WriteOutcome:
    """Write all files or none; `plan` is the record without its files and new folders."""
    if not writes:
        return WriteOutcome()
    root = Path(plan.root)
    try:
        stored = records.begin(_completed(plan, writes, root))
    except FileRefused as refused:
        return WriteOutcome(conflicts=(refused.conflict,))
    writer = _TreeWriter(stored, records.operations)
    try:
        writer.stage(writes)
        writer.commit()
        stored = records.move(stored, _State.CLEANING)
    except (FileRefused, OSError) as error:
        return _take_back(writer, error, records)
    except BaseException:  # Ctrl-C: leave nothing half-written
        _take_back(writer, OSError(), records)
        raise
    with contextlib.suppress(FileRefused, OSError):  # all is written: the next run cleans up
        _clean(stored, records)
    return WriteOutcome(written=tuple(write.path for write in writes), merged=merged)


def _completed(plan: _WriteRecord, writes: Sequence[_PlannedWrite], root: Path) -> _WriteRecord:
    files = tuple(
        _WrittenFile(
            path=write.path,
            before=write.before,
            after=_digest_of(write.after),
            mode=_permissions(root, write.path),
        )
        for write in writes
    )
    needed = {
        folder
        for write in writes
        for folder in _parent_folders(write.path)
        if write.after is not None
    }
    names = {folder: folder.encode("utf-8", "surrogateescape") for folder in needed}
    disk = read_files(root, names.values(), limit=0)
    absent = [folder for folder in needed if disk[names[folder]].kind is Kind.ABSENT]
    made = tuple(sorted(absent, key=lambda folder: (folder.count("/"), folder)))
    return plan.model_copy(update={"files": files, "made": made})


def _take_back(
    writer: _TreeWriter, error: FileRefused | OSError, records: _Journal
) -> WriteOutcome:
    """Take the files back after a failure, and return it as a conflict."""
    if isinstance(error, FileRefused):
        conflict = error.conflict
    else:
        conflict = WriteConflict(str(records.folder), error.strerror or str(error))
    try:
        edited = writer.take_back()
        records.drop(writer.stored)
    except (FileRefused, OSError) as other:
        stuck = WriteConflict(writer.stored.record.root, f"could not be restored wholly: {other}")
        return WriteOutcome(tuple(sorted(writer.replaced)), conflicts=(conflict, stuck))
    left = tuple(path for path in edited if path in writer.replaced)
    return WriteOutcome(left, conflicts=(conflict,))


def _clean(stored: _StoredRecord, records: _Journal) -> None:
    _TreeWriter(stored, records.operations).clean()
    if stored.record.undoes:
        records.drop(replace(stored, name=stored.record.undoes, state=_State.APPLIED))
        records.drop(stored)
    else:
        records.move(stored, _State.APPLIED)
        records.keep_newest()


def _take_back_all(root: Path, records: _Journal) -> tuple[str, ...]:
    done = []
    for stored in records.pending(root):
        names = ", ".join(file.path for file in stored.record.files)
        try:
            if stored.state is _State.CLEANING:
                _clean(stored, records)
                done.append(f"finished an interrupted write of {names}")
                continue
            edited = _TreeWriter(stored, records.operations).take_back()
            records.drop(stored)
            rest = f", but not {', '.join(edited)}, which has changed since" if edited else ""
            done.append(f"took back an interrupted write of {names}{rest}")
        except (FileRefused, OSError) as error:
            done.append(f"an interrupted write of {names} could not be taken back: {error}")
    return tuple(done)


class _TreeWriter:
    """Carries out one recorded write, in steps that can be repeated. Methods raise FileRefused."""

    def __init__(self, stored: _StoredRecord, operations: FileOperations) -> None:
        self.stored = stored
        self.replaced: list[str] = []
        self._record = stored.record
        self._root = Path(stored.record.root)
        self._operations = operations

    def stage(self, writes: Sequence[_PlannedWrite]) -> None:
        """Write all new contents beside the files, under temporary names, and flush them."""
        for path in self._record.made:
            self._make_folder(path)
        for number, write in enumerate(writes):
            if write.after is not None:
                self._write(number, write)

    def commit(self) -> None:
        """Replace all files. One that has changed ends it with FileRefused."""
        for number, file in enumerate(self._record.files):
            if _read_content(self._root, file.path) != file.before:
                raise FileRefused(file.path, "has changed while the patch was being written")
            with _refusing(file.path), open_parent(self._root, file.path) as (folder, name):
                if file.after is None:
                    self._operations.remove(folder, name)
                else:
                    self._operations.rename(folder, self._temporary(number), name)
                self.replaced.append(file.path)
                self._operations.sync(folder)

    def take_back(self) -> tuple[str, ...]:
        """Restore the files that were replaced, and return those with another content now."""
        self._remove_temporary()
        edited = []
        for number, file in reversed(list(enumerate(self._record.files))):
            try:
                now = _read_content(self._root, file.path)
            except FileRefused:
                edited.append(file.path)
                continue
            if now != file.before and _digest_of(now) == file.after:
                self._restore(number, file, now)
            elif now != file.before:
                edited.append(file.path)
        self._remove_empty(self._record.made[::-1])
        return tuple(sorted(edited))

    def clean(self) -> None:
        """Remove the folders that deletions have emptied."""
        self._remove_empty(self._record.emptied)

    def _restore(self, number: int, file: _WrittenFile, now: bytes | None) -> None:
        with _refusing(file.path), open_parent(self._root, file.path) as (folder, name):
            if file.before is None:
                self._operations.remove(folder, name)
            else:
                self._write(number, _PlannedWrite(file.path, now, file.before, mode=file.mode))
                self._operations.rename(folder, self._temporary(number), name)
            self._operations.sync(folder)

    def _make_folder(self, path: str) -> None:
        with _refusing(path), open_parent(self._root, path) as (parent, name):
            self._operations.make_folder(parent, name)
            made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            try:
                _give_to(made, os.fstat(parent))
            finally:
                os.close(made)
            self._operations.sync(parent)

    def _write(self, number: int, write: _PlannedWrite) -> None:
        """Write a new content to its temporary name, with what the file that is there has."""
        assert write.after is not None
        with _refusing(write.path), open_parent(self._root, write.path) as (folder, name):
            mode, old = write.mode, None
            if write.before is not None:
                old = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                mode = _bits(os.fstat(old))
            private = 0o600 if mode is not None else 0o777 if write.executable else 0o666
            new = self._operations.create(folder, self._temporary(number), private)
            try:
                self._operations.write(new, write.after)
                _give_to(new, os.fstat(folder if old is None else old))
                if old is not None:
                    _copy_attributes(write.path, old, new)
                if mode is not None:
                    os.fchmod(new, mode)
                self._operations.sync(new)
            finally:
                os.close(new)
                if old is not None:
                    os.close(old)
            self._operations.sync(folder)

    def _remove_temporary(self) -> None:
        for number, file in enumerate(self._record.files):
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
        return f".patchshot-{self.stored.name}-{number}.new"


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


def _digest_of(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _read_content(root: Path, path: str) -> bytes | None:
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


def _permissions(root: Path, path: str) -> int | None:
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


def _parent_folders(path: str) -> tuple[str, ...]:
    """Return all folders above a path: a/b/c -> a/b, a."""
    parts = path.split("/")[:-1]
    return tuple("/".join(parts[:depth]) for depth in range(len(parts), 0, -1))


def _bits(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode) & 0o777


def _give_to(descriptor: int, owner: os.stat_result) -> None:
    """Give an entry to the owner of another one, which only root can and must do."""
    if os.geteuid() == 0:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


# ---- the operations that change the disk, one method each; tests pass one that fails or kills

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


# ---- the journal: one file for each write, whose suffix is its state

# Writes that can be taken back. A patch has a few files below 1 MB each, so these take little.
_KEPT_RECORDS = 100

_FILE_NAME = re.compile(r"(\d{6})-[0-9a-f]{8}\.[a-z]+")


class _State(enum.StrEnum):
    WRITING = "writing"  # an interruption takes it back
    CLEANING = "cleaning"  # all files are replaced
    APPLIED = "applied"


class _WrittenFile(BaseModel):
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


class _WriteRecord(BaseModel):
    """One write. `run` is the run that it came from, `undoes` the record that it takes back.

    `made` are folders that the write makes, outer ones first; `emptied` are folders that it removes
    if nothing is left in them, inner ones first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str
    files: tuple[_WrittenFile, ...]
    run: str = ""
    undoes: str = ""
    made: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _StoredRecord:
    """A record in the journal. `name` is unique, and later names are greater."""

    name: str
    state: _State
    record: _WriteRecord

    @property
    def file(self) -> str:
        return f"{self.name}.{self.state.value}"


class _Journal:
    """The records in one folder. All methods but `pending` raise OSError."""

    def __init__(self, folder: Path, operations: FileOperations) -> None:
        self.folder = folder
        self.operations = operations

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and keep other processes from writing meanwhile."""
        make_private_folder(self.folder)
        with locked(self.folder / "lock", wait=True):
            yield

    def begin(self, record: _WriteRecord) -> _StoredRecord:
        """Store a record before anything is changed; it may be needed after a crash."""
        numbers = [int(name[:6]) for name in self._files()]
        name = f"{max(numbers, default=0) + 1:06d}-{secrets.token_hex(4)}"
        stored = _StoredRecord(name, _State.WRITING, record)
        with self._opened() as folder:
            descriptor = self.operations.create(folder, stored.file, 0o600)
            try:
                self.operations.write(descriptor, record.model_dump_json().encode())
                self.operations.sync(descriptor)
            except OSError:
                self.operations.remove(folder, stored.file)
                raise
            finally:
                os.close(descriptor)
            self.operations.sync(folder)
        return stored

    def move(self, stored: _StoredRecord, state: _State) -> _StoredRecord:
        """Set the state of a record: one rename, which is atomic and needs no space."""
        moved = replace(stored, state=state)
        with self._opened() as folder:
            self.operations.rename(folder, stored.file, moved.file)
            self.operations.sync(folder)
        return moved

    def drop(self, stored: _StoredRecord) -> None:
        """Remove a record."""
        with self._opened() as folder, contextlib.suppress(FileNotFoundError):
            self.operations.remove(folder, stored.file)

    def keep_newest(self) -> None:
        """Remove the oldest records, so that the folder does not grow for ever."""
        for name in self._files()[:-_KEPT_RECORDS]:
            (self.folder / name).unlink(missing_ok=True)

    def pending(self, root: Path) -> tuple[_StoredRecord, ...]:
        """Return the records of writes into `root` that were interrupted, oldest first."""
        with contextlib.suppress(OSError):
            names = [name for name in self._files() if not name.endswith(_State.APPLIED.value)]
            records = [stored for name in names if (stored := self._read(name))]
            return tuple(stored for stored in records if stored.record.root == str(root))
        return ()

    def applied(self) -> Iterator[_StoredRecord]:
        """Yield the records of what was written, newest first."""
        for name in reversed(self._files()):
            if name.endswith(_State.APPLIED.value) and (stored := self._read(name)):
                yield stored

    def _files(self) -> list[str]:
        try:
            names = os.listdir(self.folder)  # noqa: PTH208  (names are what is compared)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if _FILE_NAME.fullmatch(name))

    def _read(self, file: str) -> _StoredRecord | None:
        """Return a record; None if its process died before it was complete: nothing was done."""
        name, _, state = file.partition(".")
        try:
            data = (self.folder / file).read_bytes()
            return _StoredRecord(name, _State(state), _WriteRecord.model_validate_json(data))
        except (FileNotFoundError, ValidationError, ValueError):
            return None

    @contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)
