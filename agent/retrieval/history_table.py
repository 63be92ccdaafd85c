"""The commit history of one state of a repository, as arrays: words of messages, changed files.

Paths are those of the state itself: what a commit calls by an older name is followed through later
renames.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from agent.retrieval.identifiers import Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.repository.history import CommitFacts

SUBJECT_WEIGHT = 2
"""The subject counts as if written twice: it says what was done, the body why and by whom."""

_Key = TypeVar("_Key", int, str)

_MAX_COUNT = 0xFFFF  # what the cache has room for
_MAX_SUBJECT = 100  # characters kept for notes
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """`c` commits, newest first; `p` distinct paths, `n` distinct function names.

    `sizes` int64 (c,): files that each commit changed. `lengths` float64 (c,): weighted words of
    each message. Its words: `vocabulary` uint64 (v,), sorted term hashes; `word_commit`,
    `word` int64 (w,) and `word_count` float64 (w,) say how often commit has `vocabulary[word]`.
    Changed files: `touch_commit`, `touch_path` int64 (t,). Changed functions:
    `function_commit`, `function_path`, `function_name` int64 (u,). Both by rising commit.
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
    """The table of these commits, which are in the order of history, newest first."""
    builder = _Builder()
    for number, fact in enumerate(facts):
        builder.add(number, fact)
    return builder.finish(facts)


@dataclass(slots=True)
class Renames:
    """What became of older paths. Commits are taken from the newest on, each after its changes."""

    later: dict[str, str] = field(default_factory=dict)

    def today(self, path: str) -> str:
        """The name that a path of the commit at hand has in the newest one."""
        return self.later.get(path, path)

    def go_back(self, renames: Sequence[tuple[str, str]]) -> None:
        """Take the (before, after) of a commit, to look behind it."""
        # All at once: two files may have swapped their names.
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
        """Take the next older commit."""
        self._add_message(number, fact)
        for touch in fact.touches:
            path = _number(self.paths, self.renames.today(touch.path))
            self.touches.append((number, path))
            for name in touch.functions:
                self.functions.append((number, path, _number(self.names, name)))
        self.renames.go_back(fact.renames)

    def _add_message(self, number: int, fact: CommitFacts) -> None:
        counts = self.terms.count_hashes(f"{fact.subject}\n" * SUBJECT_WEIGHT + fact.body)
        for word, count in counts.items():
            kept = min(count, _MAX_COUNT)
            self.words.append((number, _number(self.vocabulary, word), kept))
        self.lengths.append(sum(counts.values()))

    def finish(self, facts: Sequence[CommitFacts]) -> HistoryTable:
        """The table of what was added."""
        vocabulary = np.array(list(self.vocabulary), dtype=np.uint64)
        order = np.argsort(vocabulary)
        place = np.empty(order.size, dtype=np.int64)
        place[order] = np.arange(order.size)
        word_commit, word, word_count = _columns(self.words, 3)
        touch_commit, touch_path = _columns(self.touches, 2)
        function_commit, function_path, function_name = _columns(self.functions, 3)
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


def _number(numbers: dict[_Key, int], key: _Key) -> int:
    return numbers.setdefault(key, len(numbers))


def _columns(rows: Iterable[tuple[int, ...]], width: int) -> NDArray[np.int64]:
    return np.array(list(rows), dtype=np.int64).reshape(-1, width).T


def printable(subject: str) -> str:
    """One line for a terminal: a message may hold escape sequences."""
    clean = _UNPRINTABLE.sub(" ", subject)
    return clean if len(clean) <= _MAX_SUBJECT else clean[: _MAX_SUBJECT - 1] + "…"
