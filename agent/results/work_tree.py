"""Writes changed files into the user's work tree, all or none, and takes them back.

A record with the old contents is stored in a journal outside of the work tree before anything is
changed. What was interrupted is taken back by the next call; what was written, by `agent undo`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agent.errors import RepositoryError
from agent.repository import Kind, merge_texts, read_files
from agent.results.tree_writer import FileOperations as FileOperations
from agent.results.tree_writer import (
    FileRefused,
    TreeWriter,
    WriteRecord,
    WrittenFile,
    digest_of,
    parent_folders,
    permissions,
    read_content,
)
from agent.results.tree_writer import WriteConflict as WriteConflict
from agent.shared.files import locked, make_private_folder
from agent.types import FileChange


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
    return _written(root, records, lambda: _apply(changes, root, records, run))


def undo_changes(
    root: Path, journal: Path, *, run: str = "", operations: FileOperations | None = None
) -> WriteOutcome:
    """Take back all that the last write into `root`, or that of `run`, has written, or nothing.

    A file that has changed since is a conflict. Raises RepositoryError if there is no such write.
    """
    records = _Journal(journal, operations or FileOperations())
    return _written(root, records, lambda: _undo(root, run, records))


def _written(root: Path, records: _Journal, write: Callable[[], WriteOutcome]) -> WriteOutcome:
    try:
        with records.locked():
            _take_back_all(root, records)
            return write()
    except OSError as error:
        return WriteOutcome(conflicts=(_conflict_of(error, records.folder),))


def finish_interrupted(
    root: Path, journal: Path, operations: FileOperations | None = None
) -> tuple[str, ...]:
    """Take back what killed processes left half-written; return what was done, in words.

    Costs the listing of one folder if there is nothing to do. Never raises OSError.
    """
    records = _Journal(journal, operations or FileOperations())
    try:
        if not list(records.stored(_WRITING, root)):
            return ()
        with records.locked():
            return _take_back_all(root, records)
    except OSError as error:
        return (f"an interrupted write could not be taken back: {journal}: {error.strerror}",)


# ---- what to write


def _conflict_of(error: FileRefused | OSError, place: Path) -> WriteConflict:
    if isinstance(error, FileRefused):
        return error.conflict
    return WriteConflict(str(place), error.strerror or str(error))


def _apply(changes: Sequence[FileChange], root: Path, records: _Journal, run: str) -> WriteOutcome:
    writes, merged, conflicts = [], [], []
    for change in sorted(changes, key=lambda change: change.path):
        try:
            content = read_content(root, change.path)
            after = _merged(change, content)
        except FileRefused as refused:
            conflicts.append(refused.conflict)
            continue
        if content != after:
            writes.append(FileChange(change.path, content, after, change.executable))
            if after != change.after:
                merged.append(change.path)
    if conflicts:
        return WriteOutcome(conflicts=tuple(conflicts))
    return _write(writes, root, records, run, tuple(merged)) if writes else WriteOutcome()


def _merged(change: FileChange, content: bytes | None) -> bytes | None:
    """Return what a file shall hold that holds `content`. Raises FileRefused."""
    from agent.patching import check_syntax  # slow to import, and seldom needed

    if content in (change.before, change.after):
        return change.after
    if change.before is None:
        raise FileRefused(change.path, "exists now, with another content")
    if content is None:
        raise FileRefused(change.path, "is gone")
    if change.after is None:
        raise FileRefused(change.path, "has changed, and the patch deletes it")
    merged = merge_texts(content, change.before, change.after)
    if merged is None:
        raise FileRefused(change.path, "has changed in the lines that the patch changes")
    if check_syntax((FileChange(change.path, content, merged),)):
        raise FileRefused(change.path, "has changed, and does not parse after a merge")
    return merged


def _write(
    writes: Sequence[FileChange], root: Path, records: _Journal, run: str, merged: tuple[str, ...]
) -> WriteOutcome:
    """Write all files or none. `before` of each is what is on the disk."""
    try:
        writer = records.begin(_record_of(writes, root, run))
    except FileRefused as refused:
        return WriteOutcome(conflicts=(refused.conflict,))
    try:
        writer.write(writes)
        records.move(writer.name, _WRITING, _APPLIED)
    except (FileRefused, OSError) as error:
        return _take_back(writer, error, records)
    except BaseException:  # Ctrl-C: leave nothing half-written
        _take_back(writer, OSError(), records)
        raise
    records.keep_newest()
    return WriteOutcome(written=tuple(write.path for write in writes), merged=merged)


def _record_of(writes: Sequence[FileChange], root: Path, run: str) -> WriteRecord:
    files = tuple(
        WrittenFile(
            path=write.path,
            before=write.before,
            after=digest_of(write.after),
            mode=permissions(root, write.path),
        )
        for write in writes
    )
    new = [write.path for write in writes if write.after is not None]
    names = {
        folder: folder.encode("utf-8", "surrogateescape")
        for path in new
        for folder in parent_folders(path)
    }
    disk = read_files(root, names.values(), limit=0)
    absent = [folder for folder, name in names.items() if disk[name].kind is Kind.ABSENT]
    made = tuple(sorted(absent, key=lambda folder: (folder.count("/"), folder)))
    return WriteRecord(root=str(root), files=files, run=run, made=made)


# ---- taking back


def _take_back(writer: TreeWriter, error: FileRefused | OSError, records: _Journal) -> WriteOutcome:
    """Take the files back after a failure, and return it as a conflict."""
    conflict = _conflict_of(error, records.folder)
    try:
        edited = writer.take_back()
        records.drop(writer.name)
    except (FileRefused, OSError) as other:
        stuck = WriteConflict(writer.record.root, f"could not be restored wholly: {other}")
        return WriteOutcome(tuple(sorted(writer.replaced)), conflicts=(conflict, stuck))
    left = tuple(path for path in edited if path in writer.replaced)
    return WriteOutcome(left, conflicts=(conflict,))


def _take_back_all(root: Path, records: _Journal) -> tuple[str, ...]:
    done = []
    for writer in records.stored(_WRITING, root):
        names = ", ".join(file.path for file in writer.record.files)
        try:
            edited = writer.take_back()
            records.drop(writer.name)
            rest = f", but not {', '.join(edited)}, which has changed since" if edited else ""
            done.append(f"took back an interrupted write of {names}{rest}")
        except (FileRefused, OSError) as error:
            done.append(f"an interrupted write of {names} could not be taken back: {error}")
    return tuple(done)


def _undo(root: Path, run: str, records: _Journal) -> WriteOutcome:
    """Declare a write as interrupted, and take it back; a later call finishes what is cut off."""
    applied = reversed(list(records.stored(_APPLIED, root)))
    writer = next((one for one in applied if run in ("", one.record.run)), None)
    if writer is None:
        what = f"run {run} has written nothing into it" if run else "no write into it is recorded"
        raise RepositoryError(f"{root}: there is nothing to undo ({what})")
    files, changed = writer.record.files, "has changed since it was written"
    conflicts = []
    for file in files:
        try:
            if digest_of(read_content(root, file.path)) != file.after:
                conflicts.append(WriteConflict(file.path, changed))
        except FileRefused as refused:
            conflicts.append(refused.conflict)
    if conflicts:
        return WriteOutcome(conflicts=tuple(conflicts))
    records.move(writer.name, _APPLIED, _WRITING)
    try:
        edited = writer.take_back()
    except FileRefused as refused:
        return WriteOutcome(conflicts=(refused.conflict,))
    records.drop(writer.name)
    restored = tuple(file.path for file in files if file.path not in edited)
    return WriteOutcome(restored, conflicts=tuple(WriteConflict(path, changed) for path in edited))


# ---- the journal: one file for each write, whose suffix is its state

# Writes that can be taken back. A patch has a few files below 1 MB each, so these take little.
_KEPT_RECORDS = 100

_WRITING, _APPLIED = "writing", "applied"
_FILE_NAME = re.compile(rf"\d{{6}}-[0-9a-f]{{8}}\.(?:{_WRITING}|{_APPLIED})")


class _Journal:
    """The records in one folder. Later names are greater. Methods raise OSError."""

    def __init__(self, folder: Path, operations: FileOperations) -> None:
        self.folder = folder
        self._operations = operations

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and keep other processes from writing meanwhile."""
        make_private_folder(self.folder)
        with locked(self.folder / "lock", wait=True):
            yield

    def begin(self, record: WriteRecord) -> TreeWriter:
        """Store a record before anything is changed; it may be needed after a crash."""
        numbers = [int(name[:6]) for name in self._files()]
        name = f"{max(numbers, default=0) + 1:06d}-{secrets.token_hex(4)}"
        file = f"{name}.{_WRITING}"
        with self._opened() as folder:
            descriptor = self._operations.create(folder, file, 0o600)
            try:
                self._operations.write(descriptor, record.model_dump_json().encode())
                self._operations.sync(descriptor)
            except OSError:
                self._operations.remove(folder, file)
                raise
            finally:
                os.close(descriptor)
            self._operations.sync(folder)
        return TreeWriter(name, record, self._operations)

    def move(self, name: str, old: str, new: str) -> None:
        """Set the state of a record: one rename, which is atomic and needs no space."""
        with self._opened() as folder:
            self._operations.rename(folder, f"{name}.{old}", f"{name}.{new}")
            self._operations.sync(folder)

    def drop(self, name: str) -> None:
        """Remove the record of a write that was taken back."""
        with self._opened() as folder, contextlib.suppress(FileNotFoundError):
            self._operations.remove(folder, f"{name}.{_WRITING}")

    def keep_newest(self) -> None:
        """Remove the oldest records, so that the folder does not grow for ever."""
        with contextlib.suppress(OSError):
            for name in self._files()[:-_KEPT_RECORDS]:
                (self.folder / name).unlink(missing_ok=True)

    def stored(self, state: str, root: Path) -> Iterator[TreeWriter]:
        """Yield the writes into `root` in a state, oldest first.

        A record that its process did not complete is left out: nothing was done.
        """
        for file in self._files():
            name, _, suffix = file.partition(".")
            if suffix == state:
                with contextlib.suppress(FileNotFoundError, ValidationError):
                    data = (self.folder / file).read_bytes()
                    record = WriteRecord.model_validate_json(data)
                    if record.root == str(root):
                        yield TreeWriter(name, record, self._operations)

    def _files(self) -> list[str]:
        try:
            names = os.listdir(self.folder)  # noqa: PTH208  (names are what is compared)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if _FILE_NAME.fullmatch(name))

    @contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)
