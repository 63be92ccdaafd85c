"""The hunks of a snapshot's ancestors: cached if known, otherwise read with git.

A commit is stored as the compressed output of `cached.pack`. A table is not compressed, because
every warm query reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from agent.retrieval.history.cached import (
    DIGEST_BYTES,
    CachedHistory,
    Column,
    HistoryKind,
    StrictModel,
    are_consistent,
    from_columns,
    pack,
    split_digests,
    to_columns,
    unpack,
)
from agent.retrieval.history.hunk_table import (
    CountedHunks,
    HunkTable,
    build_table,
    count_hunks,
    without_secrets,
)
from agent.retrieval.history.hunks import AddedHunk, CommitHunks, HunkFilter, read_hunks
from agent.retrieval.index import Terms
from agent.shared.cache import compress, expand

if TYPE_CHECKING:
    from agent.repository import GitRepository


@dataclass(frozen=True, slots=True)
class HunkHistory(CachedHistory[CountedHunks, HunkTable]):
    """Loads hunks of the `chosen` paths. Secrets are masked before anything is stored."""

    chosen: HunkFilter = field(default_factory=HunkFilter)

    @property
    def kind(self) -> HistoryKind[CountedHunks, HunkTable]:
        """The records of this module."""
        return _records(self.chosen)


# ------------------------------------------------------------------------------------------ records

_FORMAT = 1
"""Increase when the hunks of a commit, their text, the terms or a layout change."""

_COMMIT_MAGIC = b"phc1"
_TABLE_MAGIC = b"pht1"
_MAX_BYTES = 256 * 1024 * 1024  # limit for one commit once expanded

_COMMIT_COLUMNS: Mapping[str, Column] = {
    "sizes": Column("<u4"),
    "hashes": Column("<u8", np.uint64),
    "counts": Column("<u2"),
}
_TABLE_COLUMNS: Mapping[str, Column] = {
    "sizes": Column("<u4"),
    "functions": Column("<u4"),
    "lengths": Column("<u4", np.float64),
    "vocabulary": Column("<u8", np.uint64),
    "offsets": Column("<u4"),
    "postings": Column("<u4"),
    "counts": Column("<u2", np.float64),
    "text": Column("<u4"),
    "commit": Column("<u4"),
    "path": Column("<u4"),
    "today": Column("<u4"),
    "start": Column("<u4"),
    "end": Column("<u4"),
    "order": Column("<u4"),
    "name_of": Column("<u4"),
    "name": Column("<u4"),
}

_Count = Annotated[int, Field(ge=0, lt=2**32)]


class _StoredCommit(StrictModel):
    subject: str
    size: _Count
    left_out: _Count
    hunks: tuple[tuple[str, _Count, _Count, str, tuple[str, ...], str, _Count], ...]
    renames: tuple[tuple[str, str], ...]
    lengths: tuple[_Count, ...]


class _StoredTable(StrictModel):
    commits: tuple[str, ...]
    paths: tuple[str, ...]
    names: tuple[str, ...]
    lengths: tuple[_Count, ...]


def encode_commit(counted: CountedHunks) -> bytes:
    """Return a commit's hunks as bytes, without its id, which is the key."""
    arrays = to_columns(counted, _COMMIT_COLUMNS)
    commit = counted.commit
    stored = _StoredCommit(
        subject=commit.subject,
        size=commit.size,
        left_out=commit.left_out,
        hunks=tuple(
            (h.path, h.start, h.end, h.context, h.names, h.text, h.added) for h in commit.hunks
        ),
        renames=commit.renames,
        lengths=tuple(array.size for array in arrays),
    )
    return compress(pack(_COMMIT_MAGIC, stored, arrays, b"".join(counted.digests)))


def decode_commit(commit: str, data: bytes) -> CountedHunks | None:
    """Return the hunks of `commit`; None if `data` is not a valid record."""
    try:
        text, rest = unpack(_COMMIT_MAGIC, expand(data, _MAX_BYTES))
        stored = _StoredCommit.model_validate_json(text)
        count = len(stored.hunks)
        arrays = from_columns(rest[count * DIGEST_BYTES :], _COMMIT_COLUMNS, stored.lengths)
    except (struct.error, ValueError):
        return None
    hunks = tuple(AddedHunk(*fields) for fields in stored.hunks)
    facts = CommitHunks(commit, stored.subject, stored.size, hunks, stored.renames, stored.left_out)
    counted = CountedHunks(facts, split_digests(rest[: count * DIGEST_BYTES]), **arrays)
    return counted if _is_sound_commit(counted) else None


def _is_sound_commit(counted: CountedHunks) -> bool:
    count = len(counted.commit.hunks)
    terms = int(counted.sizes.sum())
    return are_consistent(
        (
            {count, len(counted.digests), counted.sizes.size},
            {terms, counted.hashes.size, counted.counts.size},
        ),
        (),
    )


def encode_table(table: HunkTable) -> bytes:
    """Return the table as bytes."""
    arrays = to_columns(table, _TABLE_COLUMNS)
    stored = _StoredTable(
        commits=table.commits,
        paths=table.paths,
        names=table.names,
        lengths=tuple(array.size for array in arrays),
    )
    return pack(_TABLE_MAGIC, stored, arrays, b"".join(table.digests))


def decode_table(data: bytes) -> HunkTable | None:
    """Return the table; None if `data` is not a valid one."""
    try:
        text, rest = unpack(_TABLE_MAGIC, data)
        stored = _StoredTable.model_validate_json(text)
        if len(stored.lengths) != len(_TABLE_COLUMNS):
            return None
        digests = stored.lengths[list(_TABLE_COLUMNS).index("lengths")] * DIGEST_BYTES
        arrays = from_columns(rest[digests:], _TABLE_COLUMNS, stored.lengths)
    except (struct.error, ValueError):
        return None
    table = HunkTable(
        commits=stored.commits,
        paths=stored.paths,
        names=stored.names,
        digests=split_digests(rest[:digests]),
        **arrays,
    )
    return table if _is_sound_table(table) else None


def _is_sound_table(table: HunkTable) -> bool:
    """Whether related arrays have equal lengths and every index is in range."""
    t = table
    occurrences = (t.text, t.commit, t.path, t.today, t.start, t.end, t.order)
    same = (
        {len(t.commits), t.sizes.size, t.functions.size},
        {len(t.digests), t.lengths.size},
        {array.size for array in occurrences},
        {t.name_of.size, t.name.size},
        {t.postings.size, t.counts.size, int(t.offsets[-1]) if t.offsets.size else -1},
        {t.vocabulary.size + 1, t.offsets.size},
    )
    below = (
        (len(t.commits), (t.commit,)),
        (len(t.digests), (t.text, t.postings)),
        (len(t.paths), (t.path, t.today)),
        (len(t.names), (t.name,)),
        (t.text.size, (t.name_of,)),
    )
    ordered = bool((np.diff(t.offsets) >= 0).all() and (t.vocabulary[1:] > t.vocabulary[:-1]).all())
    return ordered and are_consistent(same, below)


def _records(chosen: HunkFilter) -> HistoryKind[CountedHunks, HunkTable]:
    selection = "\0".join((*chosen.patterns, f"{chosen.min_added}|{chosen.max_hunks}"))
    return HistoryKind(
        stage="hunks",
        key=lambda what, commit: f"hunks {_FORMAT}|{what}|{commit}|{selection}",
        read=lambda git, commits: _read(git, commits, chosen),
        name=lambda counted: (counted.commit.commit, counted.commit.complete),
        encode=encode_commit,
        decode=decode_commit,
        build_table=build_table,
        encode_table=encode_table,
        decode_table=decode_table,
    )


def _read(
    git: GitRepository, commits: Sequence[str], chosen: HunkFilter
) -> Iterator[Sequence[CountedHunks]]:
    terms = Terms()
    for batch in read_hunks(git, commits, chosen):
        yield [count_hunks(without_secrets(one), terms) for one in batch]
