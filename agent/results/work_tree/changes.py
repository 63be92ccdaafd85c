"""The face of the package: apply, undo, and finish what was interrupted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import RepositoryError
from agent.repository import merge_texts
from agent.results.work_tree.journal import (
    FileOperations,
    StoredRecord,
    WriteJournal,
    WriteRecord,
    WriteState,
    WrittenFile,
)
from agent.results.work_tree.writer import (
    FileRefused,
    PlannedWrite,
    Position,
    TreeWriter,
    digest_of,
    missing_folders,
    parent_folders,
    permissions,
    read_content,
)
from agent.types import FileChange


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

    `before` of a change is the content that the patch was made for. If the file on disk differs
    from it, the two are merged where they do not overlap. `journal` is the folder of the journal;
    `run` names the write for `undo_changes`.
    """
    operations = operations or FileOperations()
    records = WriteJournal(journal, operations)
    try:
        with records.locked():
            _finish_all(root, records, operations)
            return _apply(changes, root, records, operations, run)
    except OSError as error:
        return WriteOutcome(conflicts=(WriteConflict(str(journal), error.strerror or str(error)),))


def undo_changes(
    root: Path, journal: Path, *, run: str = "", operations: FileOperations | None = None
) -> WriteOutcome:
    """Take back all that the last write into `root`, or that of `run`, has written, or nothing.

    A file that has changed since is a conflict. Raises RepositoryError if there is no such write.
    """
    operations = operations or FileOperations()
    records = WriteJournal(journal, operations)
    try:
        with records.locked():
            _finish_all(root, records, operations)
            return _undo(_find(root, run, records), root, records, operations)
    except OSError as error:
        return WriteOutcome(conflicts=(WriteConflict(str(journal), error.strerror or str(error)),))


def finish_interrupted(
    root: Path, journal: Path, operations: FileOperations | None = None
) -> tuple[str, ...]:
    """Finish or take back what killed processes left half-written; return what was done, in words.

    Costs the listing of one folder if there is nothing to do. Never raises OSError.
    """
    operations = operations or FileOperations()
    records = WriteJournal(journal, operations)
    if not records.pending(root):
        return ()
    try:
        with records.locked():
            return _finish_all(root, records, operations)
    except OSError as error:
        return (f"an interrupted write could not be finished: {journal}: {error.strerror}",)


# --------------------------------------------------------------------------------------- planning


def _apply(
    changes: Sequence[FileChange],
    root: Path,
    records: WriteJournal,
    operations: FileOperations,
    run: str,
) -> WriteOutcome:
    writes, merged, conflicts = [], [], []
    for change in sorted(changes, key=lambda change: change.path):
        try:
            write = _planned(change, root)
        except FileRefused as refused:
            conflicts.append(WriteConflict(refused.path, refused.reason))
            continue
        if write.before != write.after:
            writes.append(write)
            if write.after != change.after:
                merged.append(write.path)
    if conflicts:
        return WriteOutcome(conflicts=tuple(conflicts))
    deleted = [write.path for write in writes if write.after is None]
    emptied = dict.fromkeys(folder for path in deleted for folder in parent_folders(path))
    inner_first = tuple(sorted(emptied, key=lambda folder: (-folder.count("/"), folder)))
    return _carry_out(
        WriteRecord(root=str(root), files=(), run=run, emptied=inner_first),
        writes, tuple(merged), records, operations,
    )  # fmt: skip


def _planned(change: FileChange, root: Path) -> PlannedWrite:
    """Return what to write for a change. Raises FileRefused if it does not fit the disk."""
    now = read_content(root, change.path)
    after = change.after
    if now not in (change.before, change.after):
        after = _merged(change, now)
    return PlannedWrite(change.path, now, after, executable=change.executable)


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


def _find(root: Path, run: str, records: WriteJournal) -> StoredRecord:
    for stored in records.applied():
        if stored.record.root == str(root) and run in ("", stored.record.run):
            return stored
    what = f"run {run} has written nothing into it" if run else "no write into it is recorded"
    raise RepositoryError(f"{root}: there is nothing to undo ({what})")


def _undo(
    stored: StoredRecord, root: Path, records: WriteJournal, operations: FileOperations
) -> WriteOutcome:
    writes, conflicts = [], []
    for file in stored.record.files:
        try:
            now = read_content(root, file.path)
        except FileRefused as refused:
            conflicts.append(WriteConflict(refused.path, refused.reason))
            continue
        if digest_of(now) == file.after:
            writes.append(PlannedWrite(file.path, now, file.before, mode=file.mode))
        else:
            conflicts.append(WriteConflict(file.path, "has changed since it was written"))
    if conflicts:
        return WriteOutcome(conflicts=tuple(conflicts))
    record = WriteRecord(
        root=str(root), files=(), undoes=stored.name, emptied=stored.record.made[::-1]
    )
    return _carry_out(record, writes, (), records, operations)


# ------------------------------------------------------------------------------------ carrying out


def _carry_out(
    plan: WriteRecord,
    writes: Sequence[PlannedWrite],
    merged: tuple[str, ...],
    records: WriteJournal,
    operations: FileOperations,
) -> WriteOutcome:
    """Write all files or none; `plan` is the record without its files and new folders."""
    if not writes:
        return WriteOutcome()
    root = Path(plan.root)
    try:
        stored = records.begin(_completed(plan, writes, root))
    except FileRefused as refused:
        return WriteOutcome(conflicts=(WriteConflict(refused.path, refused.reason),))
    writer = TreeWriter(root, operations)
    try:
        writer.stage(stored, writes)
        stored = records.move(stored, WriteState.COMMITTING)
        writer.commit(stored)
    except (FileRefused, OSError) as error:
        return _take_back(stored, error, writer, records)
    except BaseException:  # Ctrl-C: leave nothing half-written
        _take_back(stored, OSError(), writer, records)
        raise
    with contextlib.suppress(FileRefused, OSError):  # all is written: the next run cleans up
        _finish(stored, writer, records)
    return WriteOutcome(written=tuple(write.path for write in writes), merged=merged)


def _completed(plan: WriteRecord, writes: Sequence[PlannedWrite], root: Path) -> WriteRecord:
    files = tuple(
        WrittenFile(
            path=write.path,
            before=write.before,
            after=digest_of(write.after),
            mode=permissions(root, write.path),
        )
        for write in writes
    )
    made = missing_folders(root, [write.path for write in writes if write.after is not None])
    return plan.model_copy(update={"files": files, "made": made})


def _take_back(
    stored: StoredRecord, error: FileRefused | OSError, writer: TreeWriter, records: WriteJournal
) -> WriteOutcome:
    """Roll back after a failure, and return it as a conflict."""
    if isinstance(error, FileRefused):
        conflict = WriteConflict(error.path, error.reason)
    else:
        conflict = WriteConflict(str(records.folder), error.strerror or str(error))
    try:
        with contextlib.suppress(OSError):  # the state folder may be what has failed
            stored = records.move(stored, WriteState.REVERTING)
        left = writer.roll_back(stored)
        records.drop(stored)
    except (FileRefused, OSError) as other:
        stuck = WriteConflict(stored.record.root, f"could not be restored wholly: {other}")
        return WriteOutcome(_done(stored, writer), conflicts=(conflict, stuck))
    return WriteOutcome(left, conflicts=(conflict,))


def _done(stored: StoredRecord, writer: TreeWriter) -> tuple[str, ...]:
    """Return the files that hold the new content."""
    return tuple(
        file.path
        for number, file in enumerate(stored.record.files)
        if writer.position(stored, number) is Position.DONE
    )


def _finish(stored: StoredRecord, writer: TreeWriter, records: WriteJournal) -> None:
    """Complete a write whose files are all replaced."""
    if stored.state is not WriteState.CLEANING:
        stored = records.move(stored, WriteState.CLEANING)
    writer.clean(stored)
    if stored.record.undoes:
        undone = records.named(stored.record.undoes)
        if undone is not None:
            records.drop(undone)
        records.drop(stored)
    else:
        records.move(stored, WriteState.APPLIED)
        records.keep_newest()


# ------------------------------------------------------------------------------------ interruptions


def _finish_all(root: Path, records: WriteJournal, operations: FileOperations) -> tuple[str, ...]:
    """Finish or take back all interrupted writes into `root`, and say what was done."""
    writer = TreeWriter(root, operations)
    done = []
    for stored in records.pending(root):
        names = ", ".join(file.path for file in stored.record.files)
        try:
            done.append(_recover(stored, names, writer, records))
        except (FileRefused, OSError) as error:
            done.append(f"an interrupted write of {names} could not be finished: {error}")
    return tuple(done)


def _recover(stored: StoredRecord, names: str, writer: TreeWriter, records: WriteJournal) -> str:
    finishing = stored.state is WriteState.CLEANING or (
        stored.state is WriteState.COMMITTING and writer.can_finish(stored)
    )
    if finishing:
        if stored.state is WriteState.COMMITTING:
            writer.commit(stored)
        _finish(stored, writer, records)
        advice = "" if stored.record.undoes else "; agent undo takes it back"
        return f"finished an interrupted write of {names}{advice}"
    left = writer.roll_back(stored)
    records.drop(stored)
    rest = f", but not {', '.join(left)}, which has changed since" if left else ""
    return f"took back an interrupted write of {names}{rest}"
