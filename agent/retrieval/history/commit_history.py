"""The commit history of a snapshot as arrays: words of messages, changed files and functions.

Paths are those of the snapshot: older names are mapped through later renames. A commit is stored as
JSON, compressed with zlib; a table as the compressed output of `cached.pack`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from agent.retrieval.history.cached import (
    CachedHistory,
    Column,
    HistoryKind,
    StrictModel,
    are_consistent,
    columns_of,
    from_columns,
    number_of,
    pack,
    to_columns,
    unpack,
)
from agent.retrieval.history.commits import CommitFacts, Touch, read_commits
from agent.retrieval.index import Terms
from agent.shared.cache import compress, expand

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUBJECT_WEIGHT = 2
"""Weight of the subject relative to the body: it names the change, the body gives reasons."""

_MAX_COUNT = 0xFFFF  # the largest count that the cache can store
_MAX_SUBJECT = 100  # characters shown in notes
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """`c` commits, newest first; `p` distinct paths, `n` distinct function names.

    `sizes` int64 (c,): number of files that each commit changed. `lengths` float64 (c,): weighted
    number of words in each message. Words: `vocabulary` uint64 (v,), sorted term hashes; the
    message of commit `word_commit` has `vocabulary[word]` `word_count` times, int64, int64 and
    float64 (w,). Changed files: `touch_commit`, `touch_path` int64 (t,). Changed functions:
    `function_commit`, `function_path`, `function_name` int64 (u,). Both are ordered by rising
    commit.
    """

    commits: tuple[str, ...]
    subjects: tuple[str, ...]
    paths: tuple[str, ...]
    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    lengths: NDArray[np.float64]
    vocabulary: NDArray[np.uint64]
    word_commit: NDArray[np.int64]
    word: NDArray[np.int64]
    word_count: NDArray[np.float64]
    touch_commit: NDArray[np.int64]
    touch_path: NDArray[np.int64]
    function_commit: NDArray[np.int64]
    function_path: NDArray[np.int64]
    function_name: NDArray[np.int64]


def build_table(facts: Sequence[CommitFacts]) -> HistoryTable:
    """Build the table of these commits, which are newest first."""
    builder = _Builder()
    for number, fact in enumerate(facts):
        builder.add(number, fact)
    return builder.finish(facts)


@dataclass(slots=True)
class Renames:
    """Maps older paths to today's. Add commits newest first, each after mapping its own changes."""

    later: dict[str, str] = field(default_factory=dict)

    def today(self, path: str) -> str:
        """Return the newest name of a path of the current commit."""
        return self.later.get(path, path)

    def go_back(self, renames: Sequence[tuple[str, str]]) -> None:
        """Add the renames (before, after) of a commit. Later calls take paths from before it."""
        # One update for all renames: two files may have swapped their names.
        self.later.update([(old, self.later.get(new, new)) for old, new in renames])


@dataclass(slots=True)
class _Builder:
    """Numbers paths, names and words as they come."""

    terms: Terms = field(default_factory=Terms)
    vocabulary: dict[int, int] = field(default_factory=dict)
    paths: dict[str, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    renames: Renames = field(default_factory=Renames)
    lengths: list[int] = field(default_factory=list)
    words: list[tuple[int, int, int]] = field(default_factory=list)
    touches: list[tuple[int, int]] = field(default_factory=list)
    functions: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, number: int, fact: CommitFacts) -> None:
        """Add the next older commit."""
        self._add_message(number, fact)
        for touch in fact.touches:
            path = number_of(self.paths, self.renames.today(touch.path))
            self.touches.append((number, path))
            for name in touch.functions:
                self.functions.append((number, path, number_of(self.names, name)))
        self.renames.go_back(fact.renames)

    def _add_message(self, number: int, fact: CommitFacts) -> None:
        counts = self.terms.count_hashes(f"{fact.subject}\n" * SUBJECT_WEIGHT + fact.body)
        for word, count in counts.items():
            kept = min(count, _MAX_COUNT)
            self.words.append((number, number_of(self.vocabulary, word), kept))
        self.lengths.append(sum(counts.values()))

    def finish(self, facts: Sequence[CommitFacts]) -> HistoryTable:
        """Build the table of the commits added."""
        vocabulary = np.array(list(self.vocabulary), dtype=np.uint64)
        order = np.argsort(vocabulary)
        place = np.empty(order.size, dtype=np.int64)
        place[order] = np.arange(order.size)
        word_commit, word, word_count = columns_of(self.words, 3)
        touch_commit, touch_path = columns_of(self.touches, 2)
        function_commit, function_path, function_name = columns_of(self.functions, 3)
        return HistoryTable(
            commits=tuple(fact.commit for fact in facts),
            subjects=tuple(printable(fact.subject) for fact in facts),
            paths=tuple(self.paths),
            names=tuple(self.names),
            sizes=np.array([fact.size for fact in facts], dtype=np.int64),
            lengths=np.array(self.lengths, dtype=np.float64),
            vocabulary=vocabulary[order],
            word_commit=word_commit,
            word=place[word],
            word_count=word_count.astype(np.float64),
            touch_commit=touch_commit,
            touch_path=touch_path,
            function_commit=function_commit,
            function_path=function_path,
            function_name=function_name,
        )


def printable(subject: str) -> str:
    """Return the subject as one line without control characters: it may hold escape sequences."""
    clean = _UNPRINTABLE.sub(" ", subject)
    return clean if len(clean) <= _MAX_SUBJECT else clean[: _MAX_SUBJECT - 1] + "…"


# ------------------------------------------------------------------------------------------ records

_FORMAT = 1
"""Increase when the facts, terms or a layout change; older records are then ignored."""

_MAGIC = b"psh1"
_MAX_BYTES = 64 * 1024 * 1024  # limit once expanded, many times what 2,500 commits need
_Count = Annotated[int, Field(ge=0)]

_COLUMNS: Mapping[str, Column] = {
    "sizes": Column("<u4"),
    "lengths": Column("<u4", np.float64),
    "vocabulary": Column("<u8", np.uint64),
    "word_commit": Column("<u4"),
    "word": Column("<u4"),
    "word_count": Column("<u2", np.float64),
    "touch_commit": Column("<u4"),
    "touch_path": Column("<u4"),
    "function_commit": Column("<u4"),
    "function_path": Column("<u4"),
    "function_name": Column("<u4"),
}


class _StoredCommit(StrictModel):
    subject: str
    body: str
    size: _Count
    touches: tuple[tuple[str, tuple[str, ...]], ...]
    renames: tuple[tuple[str, str], ...]


class _StoredTexts(StrictModel):
    commits: tuple[str, ...]
    subjects: tuple[str, ...]
    paths: tuple[str, ...]
    names: tuple[str, ...]
    lengths: tuple[_Count, ...]


def encode_facts(facts: CommitFacts) -> bytes:
    """Return a commit as bytes, without its id, which is the key."""
    stored = _StoredCommit(
        subject=facts.subject,
        body=facts.body,
        size=facts.size,
        touches=tuple((touch.path, touch.functions) for touch in facts.touches),
        renames=facts.renames,
    )
    return compress(stored.model_dump_json().encode("utf-8"))


def decode_facts(commit: str, data: bytes) -> CommitFacts | None:
    """Return the facts of `commit`; None if `data` is not a valid record."""
    try:
        stored = _StoredCommit.model_validate_json(expand(data, _MAX_BYTES))
    except ValueError:  # raised by `expand` or by pydantic
        return None
    touches = tuple(Touch(path, functions) for path, functions in stored.touches)
    return CommitFacts(commit, stored.subject, stored.body, stored.size, touches, stored.renames)


def encode_table(table: HistoryTable) -> bytes:
    """Return the table as compressed bytes."""
    arrays = to_columns(table, _COLUMNS)
    texts = _StoredTexts(
        commits=table.commits,
        subjects=table.subjects,
        paths=table.paths,
        names=table.names,
        lengths=tuple(array.size for array in arrays),
    )
    return compress(pack(_MAGIC, texts, arrays))


def decode_table(data: bytes) -> HistoryTable | None:
    """Return the table; None if `data` is not a valid one."""
    try:
        text, rest = unpack(_MAGIC, expand(data, _MAX_BYTES))
        texts = _StoredTexts.model_validate_json(text)
        arrays = from_columns(rest, _COLUMNS, texts.lengths)
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


def _is_sound(table: HistoryTable) -> bool:
    """Whether related arrays have equal lengths and every index is in range."""
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
    return are_consistent(same, below)


_RECORDS = HistoryKind(
    stage="history",
    key=lambda what, commit: f"history {_FORMAT}|{what}|{commit}",
    read=read_commits,
    name=lambda commit: (commit.commit, commit.complete),
    encode=encode_facts,
    decode=decode_facts,
    build_table=build_table,
    encode_table=encode_table,
    decode_table=decode_table,
)


class CommitHistory(CachedHistory[CommitFacts, HistoryTable]):
    """Loads messages, changed files and changed functions."""

    __slots__ = ()

    @property
    def kind(self) -> HistoryKind[CommitFacts, HistoryTable]:
        """The records of this module."""
        return _RECORDS
