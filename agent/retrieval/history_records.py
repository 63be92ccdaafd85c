"""Commits and history tables as bytes, for the cache. Decoding gives None for what is neither.

A commit: JSON, zlib. A table: magic, length of the JSON, JSON (all texts, and how long each array
is), then the arrays of `HistoryTable` in its order, little-endian; all of it zlib.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from agent.repository.history import CommitFacts, Touch
from agent.retrieval.compression import compress, expand
from agent.retrieval.history_table import HistoryTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 1
"""Raise when what is read of a commit, terms or a layout change: older records are not found."""

_MAGIC = b"psh1"
_HEADER = struct.Struct("<4sI")
_MAX_BYTES = 64 * 1024 * 1024  # once inflated: many times what 2,500 commits need
_Count = Annotated[int, Field(ge=0)]

# How each array is stored; in memory they are int64 and float64, the vocabulary uint64.
_STORED: Mapping[str, str] = {
    "sizes": "<u4",
    "lengths": "<u4",
    "vocabulary": "<u8",
    "word_commit": "<u4",
    "word": "<u4",
    "word_count": "<u2",
    "touch_commit": "<u4",
    "touch_path": "<u4",
    "function_commit": "<u4",
    "function_path": "<u4",
    "function_name": "<u4",
}
_FLOATS = frozenset({"lengths", "word_count"})


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _StoredCommit(_Strict):
    subject: str
    body: str
    size: _Count
    touches: tuple[tuple[str, tuple[str, ...]], ...]
    renames: tuple[tuple[str, str], ...]


class _StoredTexts(_Strict):
    commits: tuple[str, ...]
    subjects: tuple[str, ...]
    paths: tuple[str, ...]
    names: tuple[str, ...]
    lengths: tuple[_Count, ...]


def encode_facts(facts: CommitFacts) -> bytes:
    """What a commit did, as bytes; without its id, which is the key."""
    stored = _StoredCommit(
        subject=facts.subject,
        body=facts.body,
        size=facts.size,
        touches=tuple((touch.path, touch.functions) for touch in facts.touches),
        renames=facts.renames,
    )
    return compress(stored.model_dump_json().encode("utf-8"))


def decode_facts(commit: str, data: bytes) -> CommitFacts | None:
    """The facts of `commit`, or None when `data` is no record of a commit."""
    try:
        stored = _StoredCommit.model_validate_json(expand(data, _MAX_BYTES))
    except ValueError:  # of `expand`, or of pydantic
        return None
    touches = tuple(Touch(path, functions) for path, functions in stored.touches)
    return CommitFacts(commit, stored.subject, stored.body, stored.size, touches, stored.renames)


def encode_table(table: HistoryTable) -> bytes:
    """The table as compressed bytes."""
    arrays = [getattr(table, name).astype(dtype) for name, dtype in _STORED.items()]
    texts = _StoredTexts(
        commits=table.commits,
        subjects=table.subjects,
        paths=table.paths,
        names=table.names,
        lengths=tuple(array.size for array in arrays),
    )
    text = texts.model_dump_json().encode("utf-8")
    parts = (_HEADER.pack(_MAGIC, len(text)), text, *(array.tobytes() for array in arrays))
    return compress(b"".join(parts))


def decode_table(data: bytes) -> HistoryTable | None:
    """The table, or None when `data` is not one."""
    try:
        raw = expand(data, _MAX_BYTES)
        magic, length = _HEADER.unpack_from(raw)
        if magic != _MAGIC:
            return None
        texts = _StoredTexts.model_validate_json(raw[_HEADER.size : _HEADER.size + length])
        arrays = _arrays(raw[_HEADER.size + length :], texts.lengths)
    except (struct.error, ValueError):
        return None
    table = HistoryTable(
        commits=texts.commits,
        subjects=texts.subjects,
        paths=texts.paths,
        names=texts.names,
        **arrays,
    )
    return table if _is_sound(table) else None


def _arrays(raw: bytes, lengths: Sequence[int]) -> dict[str, NDArray[Any]]:
    """Raises ValueError where the bytes are more or less than the arrays."""
    arrays: dict[str, NDArray[Any]] = {}
    at = 0
    for (name, stored), length in zip(_STORED.items(), lengths, strict=True):
        array = np.frombuffer(raw, stored, length, at)
        at += array.nbytes
        kind = np.float64 if name in _FLOATS else np.int64
        arrays[name] = array.astype(np.uint64 if name == "vocabulary" else kind)
    if at != len(raw):
        raise ValueError("bytes left over")
    return arrays


def _is_sound(table: HistoryTable) -> bool:
    """Whether arrays that belong together are of one length and every index points at something."""
    commits = len(table.commits)
    same = (
        {commits, len(table.subjects), table.sizes.size, table.lengths.size},
        {table.word_commit.size, table.word.size, table.word_count.size},
        {table.touch_commit.size, table.touch_path.size},
        {table.function_commit.size, table.function_path.size, table.function_name.size},
    )
    below = (
        (commits, (table.word_commit, table.touch_commit, table.function_commit)),
        (table.vocabulary.size, (table.word,)),
        (len(table.paths), (table.touch_path, table.function_path)),
        (len(table.names), (table.function_name,)),
    )
    return all(len(sizes) == 1 for sizes in same) and all(
        array.max(initial=-1) < count for count, arrays in below for array in arrays
    )
