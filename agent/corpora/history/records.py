"""Hunks of commits and hunk tables as bytes, for the cache. What is neither decodes to None.

Both: magic, length of the JSON, JSON (texts, and how long each array is), the arrays,
little-endian. A commit is deflated besides; a table, which every warm query reads, is not.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from agent.corpora.history.table import CountedHunks, HunkTable
from agent.repository.hunks import CommitHunks, Hunk
from agent.retrieval.compression import compress, expand

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 1
"""Raise when what is read of a commit, its text, terms or a layout change."""

_COMMIT_MAGIC = b"phc1"
_TABLE_MAGIC = b"pht1"
_HEADER = struct.Struct("<4sI")
_DIGEST = 32  # bytes
_MAX_BYTES = 256 * 1024 * 1024  # of a commit once inflated: far more than 100 hunks need
_MAX_COUNT = 0xFFFF

_COMMIT_ARRAYS: Mapping[str, str] = {"sizes": "<u4", "hashes": "<u8", "counts": "<u2"}
_TABLE_ARRAYS: Mapping[str, str] = {
    "sizes": "<u4",
    "functions": "<u4",
    "lengths": "<u4",
    "vocabulary": "<u8",
    "offsets": "<u4",
    "postings": "<u4",
    "counts": "<u2",
    "text": "<u4",
    "commit": "<u4",
    "path": "<u4",
    "today": "<u4",
    "start": "<u4",
    "end": "<u4",
    "order": "<u4",
    "name_of": "<u4",
    "name": "<u4",
}
_IN_MEMORY: Mapping[str, type[np.generic]] = {
    "hashes": np.uint64,
    "vocabulary": np.uint64,
    "lengths": np.float64,
}
"""Others are int64, but for a table's `counts`, which are float64."""

_Count = Annotated[int, Field(ge=0, lt=2**32)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _StoredCommit(_Strict):
    subject: str
    size: _Count
    left_out: _Count
    hunks: tuple[tuple[str, _Count, _Count, str, tuple[str, ...], str, _Count], ...]
    renames: tuple[tuple[str, str], ...]
    lengths: tuple[_Count, ...]


class _StoredTable(_Strict):
    commits: tuple[str, ...]
    paths: tuple[str, ...]
    names: tuple[str, ...]
    lengths: tuple[_Count, ...]


def encode_commit(counted: CountedHunks) -> bytes:
    """A commit's hunks as bytes; without its id, which is the key."""
    arrays = [
        np.minimum(getattr(counted, name), _MAX_COUNT).astype(kind)
        if name == "counts"
        else getattr(counted, name).astype(kind)
        for name, kind in _COMMIT_ARRAYS.items()
    ]
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
    return compress(_packed(_COMMIT_MAGIC, stored, b"".join(counted.digests), arrays))


def decode_commit(commit: str, data: bytes) -> CountedHunks | None:
    """The hunks of `commit`, or None when `data` is no record of one."""
    try:
        text, rest = _unpacked(_COMMIT_MAGIC, expand(data, _MAX_BYTES))
        stored = _StoredCommit.model_validate_json(text)
        count = len(stored.hunks)
        arrays = _arrays(rest[count * _DIGEST :], _COMMIT_ARRAYS, stored.lengths)
    except (struct.error, ValueError):
        return None
    hunks = tuple(Hunk(*fields) for fields in stored.hunks)
    facts = CommitHunks(commit, stored.subject, stored.size, hunks, stored.renames, stored.left_out)
    counted = CountedHunks(facts, _digests(rest[: count * _DIGEST]), **arrays)
    return counted if _is_sound_commit(counted) else None


def _is_sound_commit(counted: CountedHunks) -> bool:
    count = len(counted.commit.hunks)
    return len(
        counted.digests
    ) == count == counted.sizes.size and counted.hashes.size == counted.counts.size == int(
        counted.sizes.sum()
    )


def encode_table(table: HunkTable) -> bytes:
    """The table as bytes."""
    arrays = [
        np.minimum(getattr(table, name), _MAX_COUNT).astype(kind)
        if name == "counts"
        else getattr(table, name).astype(kind)
        for name, kind in _TABLE_ARRAYS.items()
    ]
    stored = _StoredTable(
        commits=table.commits,
        paths=table.paths,
        names=table.names,
        lengths=tuple(array.size for array in arrays),
    )
    return _packed(_TABLE_MAGIC, stored, b"".join(table.digests), arrays)


def decode_table(data: bytes) -> HunkTable | None:
    """The table, or None when `data` is not one."""
    try:
        text, rest = _unpacked(_TABLE_MAGIC, data)
        stored = _StoredTable.model_validate_json(text)
        if len(stored.lengths) != len(_TABLE_ARRAYS):
            return None
        digests = stored.lengths[list(_TABLE_ARRAYS).index("lengths")] * _DIGEST
        arrays = _arrays(rest[digests:], _TABLE_ARRAYS, stored.lengths)
    except (struct.error, ValueError):
        return None
    arrays["counts"] = arrays["counts"].astype(np.float64)
    table = HunkTable(
        commits=stored.commits,
        paths=stored.paths,
        names=stored.names,
        digests=_digests(rest[:digests]),
        **arrays,
    )
    return table if _is_sound_table(table) else None


def _is_sound_table(table: HunkTable) -> bool:
    """Whether arrays that belong together are of one length and every index points at something."""
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
    return (
        ordered
        and all(len(sizes) == 1 for sizes in same)
        and all(array.max(initial=-1) < count for count, arrays in below for array in arrays)
    )


# ------------------------------------------------------------------------------------------- layout


def _packed(
    magic: bytes, stored: BaseModel, digests: bytes, arrays: Sequence[NDArray[Any]]
) -> bytes:
    text = stored.model_dump_json().encode("utf-8")
    return b"".join(
        (_HEADER.pack(magic, len(text)), text, digests, *(array.tobytes() for array in arrays))
    )


def _unpacked(magic: bytes, data: bytes) -> tuple[bytes, bytes]:
    """JSON, and what follows it. Raises struct.error or ValueError for anything else."""
    found, length = _HEADER.unpack_from(data)
    if found != magic:
        raise ValueError("another format")
    end = _HEADER.size + length
    return data[_HEADER.size : end], data[end:]


def _arrays(raw: bytes, stored: Mapping[str, str], lengths: Sequence[int]) -> dict[str, Any]:
    """Raises ValueError where the bytes are more or less than the arrays."""
    arrays: dict[str, Any] = {}
    at = 0
    for (name, kind), length in zip(stored.items(), lengths, strict=True):
        array = np.frombuffer(raw, kind, length, at)
        at += array.nbytes
        arrays[name] = array.astype(_IN_MEMORY.get(name, np.int64))
    if at != len(raw):
        raise ValueError("bytes left over")
    return arrays


def _digests(raw: bytes) -> tuple[bytes, ...]:
    return tuple(raw[at : at + _DIGEST] for at in range(0, len(raw), _DIGEST))
