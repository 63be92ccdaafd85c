"""Evidence from past hunks: code whose past changes contain words similar to the problem's.

The hunks most similar to the problem (BM25 over their texts, as in
`agent.retrieval.ranking.lexical`) pass their similarity to current files and functions. Paths are
followed through renames, functions by name or otherwise by their lines. A hunk of a commit that
changed many functions counts less for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import RepositoryError
from agent.retrieval.history import LineFollower, NoHistory
from agent.retrieval.index import Terms
from agent.retrieval.ranking import (
    K1,
    Evidence,
    LocalNames,
    inverse_frequency,
    length_norm,
    make_query,
    spread_shares,
)
from agent.types import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.history import HunkHistory, HunkTable
    from agent.retrieval.index import Corpus
    from agent.retrieval.ranking import LexicalQuery, Mentions
    from agent.types import Problem
    from agent.types.protocols import Snapshot

FEATURE = "hunks"
"""The feature of files and pieces, and the group name for `--without`."""

PIECE_WEIGHT = 0.3
FILE_WEIGHT = 0.0
"""Measured on 122 tuning issues: a positive weight does not help functions, and worsens the top
files.
"""

MAX_FILES = 12
"""Commits that changed more files are mass edits and are ignored, as in `retrieval.history`."""

MAX_SIMILAR = 30  # maximum occurrences; later ones share only common words


@dataclass(frozen=True, slots=True)
class HunkEvidence:
    """The `EvidenceSource` of past hunks: feature "hunks" of pieces and files.

    A weight is the score of the best piece or file, relative to 1 for the best chunk by words. A
    weight of 0 turns the feature off.
    """

    history: HunkHistory
    piece_weight: float = PIECE_WEIGHT
    file_weight: float = FILE_WEIGHT

    def __call__(
        self, problem: Problem, _mentions: Mentions, snapshot: Snapshot, corpus: Corpus, /
    ) -> Evidence:
        """Return no evidence if there is no history. Raises Cancelled."""
        table = self.history.table(snapshot)
        query = make_query(problem, Terms())
        lines = _Lines(self.history, snapshot, table, LineFollower(snapshot, corpus))
        scores = score_hunks(table, query, corpus, lines.follow)
        return evidence_of(table, scores, self.piece_weight, self.file_weight)


@dataclass(slots=True)
class _Lines:
    """Finds the current pieces that contain the lines of an occurrence."""

    history: HunkHistory
    snapshot: Snapshot
    table: HunkTable
    follower: LineFollower

    def follow(self, lost: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Yield pairs of occurrence and piece.

        `lost` maps the occurrences to find to their files.
        """
        if not lost:
            return
        ids = {occurrence: self._commit(occurrence) for occurrence in lost}
        try:
            commits = self.history.some(self.snapshot, dict.fromkeys(ids.values()))
        except (NoHistory, RepositoryError):
            return  # the cache was just cleared and the repository no longer exists
        for occurrence, file in lost.items():
            counted = commits.get(ids[occurrence])
            order = int(self.table.order[occurrence])
            if counted is not None and order < len(counted.commit.hunks):
                text = counted.commit.hunks[order].text
                for piece in self.follower.pieces(file, text):
                    yield occurrence, piece

    def _commit(self, occurrence: int) -> str:
        return self.table.commits[int(self.table.commit[occurrence])]


@dataclass(frozen=True, slots=True)
class HunkScores:
    """Scores for the f files and n pieces of a corpus.

    The maximum of each array is 1, or 0 without hits.

    `files` float64 (f,), `pieces` float64 (n,). `file_from` int64 (f,) and `piece_from` int64 (n,)
    name the occurrence that contributed most, -1 for none.
    """

    files: NDArray[np.float64]
    pieces: NDArray[np.float64]
    file_from: NDArray[np.int64]
    piece_from: NDArray[np.int64]


def similarities(table: HunkTable, query: LexicalQuery) -> NDArray[np.float64]:
    """Return the BM25 score of each distinct text, float64 (d,)."""
    scores = np.zeros(len(table.digests))
    if not table.vocabulary.size or not query.hashes.size:
        return scores
    at = np.minimum(np.searchsorted(table.vocabulary, query.hashes), table.vocabulary.size - 1)
    hits = np.flatnonzero(table.vocabulary[at] == query.hashes)
    first, end = table.offsets[at[hits]], table.offsets[at[hits] + 1]
    rarity = inverse_frequency(scores.size, end - first)
    norm = length_norm(table.lengths, float(table.lengths.mean()))
    worth = query.weights[hits] * rarity * (K1 + 1)
    for value, low, high in zip(worth, first, end, strict=True):
        owner, count = table.postings[low:high], table.counts[low:high]
        scores[owner] += value * count / (count + norm[owner])
    return scores


def most_similar(
    table: HunkTable, similar: NDArray[np.float64], limit: int, max_files: int
) -> NDArray[np.int64]:
    """Return the occurrences in commits of at most `max_files` files, by falling similarity, newest
    first.
    """
    scores = np.where(table.sizes[table.commit] <= max_files, similar[table.text], 0.0)
    best = np.lexsort((np.arange(scores.size), -scores))[:limit]
    return np.asarray(best[scores[best] > 0.0], dtype=np.int64)


Follow = Callable[[Mapping[int, int]], Iterable[tuple[int, int]]]
"""Maps occurrences without a piece, with the file of each, to pairs of occurrence and piece."""


def score_hunks(
    table: HunkTable, query: LexicalQuery, corpus: Corpus, follow: Follow | None = None
) -> HunkScores:
    """Score each file and piece of the corpus by past hunks, given the problem's terms."""
    similar = similarities(table, query)
    best = most_similar(table, similar, MAX_SIMILAR, MAX_FILES)
    shares = np.zeros(table.text.size)
    if best.size:
        known = similar[table.text[best]]
        shares[best] = (
            known / known[0] / np.sqrt(np.maximum(table.functions[table.commit[best]], 1))
        )
    file_of = _files_of(table, corpus)
    occurrences = np.arange(table.text.size)
    files, file_from = spread_shares(file_of, occurrences, shares, len(corpus.files))
    rows = _by_name(table, corpus, file_of, shares)
    if follow is not None:
        rows += _by_lines(follow, best, file_of, rows)
    owner, source, part = _columns(rows)
    pieces, piece_from = spread_shares(owner, source, shares, len(corpus.pieces), part)
    return HunkScores(files, pieces, file_from, piece_from)


def _files_of(table: HunkTable, corpus: Corpus) -> NDArray[np.int64]:
    """Return the current file of each occurrence, int64 (o,), -1 for none."""
    numbers = {file.path: number for number, file in enumerate(corpus.files)}
    of_path = np.array([numbers.get(path, -1) for path in table.paths], dtype=np.int64)
    return of_path[table.today] if table.today.size else np.empty(0, dtype=np.int64)


def _by_name(
    table: HunkTable, corpus: Corpus, file_of: NDArray[np.int64], shares: NDArray[np.float64]
) -> list[tuple[int, int, float]]:
    """Return (piece, occurrence, share) for each function around a similar hunk.

    If several pieces of the file have the name, each gets an equal part of the share.
    """
    rows: list[tuple[int, int, float]] = []
    names = LocalNames(corpus)
    for row in np.flatnonzero(shares[table.name_of] > 0):
        occurrence = int(table.name_of[row])
        pieces = names.find(int(file_of[occurrence]), table.names[int(table.name[row])])
        rows.extend((piece, occurrence, 1.0 / len(pieces)) for piece in pieces)
    return rows


def _by_lines(
    follow: Follow,
    best: NDArray[np.int64],
    file_of: NDArray[np.int64],
    named: Iterable[tuple[int, int, float]],
) -> list[tuple[int, int, float]]:
    """Return (piece, occurrence, share) for hunks without a named function.

    All pieces that contain lines of a hunk get equal parts.
    """
    found = {occurrence for _, occurrence, _ in named}
    lost = {
        int(one): int(file_of[one]) for one in best if file_of[one] >= 0 and int(one) not in found
    }
    pieces = list(follow(lost))
    counts = Counter(occurrence for occurrence, _ in pieces)
    return [(piece, occurrence, 1.0 / counts[occurrence]) for occurrence, piece in pieces]


def _columns(
    rows: Sequence[tuple[int, int, float]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    owner, source, part = zip(*rows, strict=True) if rows else ((), (), ())
    return (
        np.array(owner, dtype=np.int64),
        np.array(source, dtype=np.int64),
        np.array(part, dtype=np.float64),
    )


def evidence_of(
    table: HunkTable, scores: HunkScores, piece_weight: float, file_weight: float
) -> Evidence:
    """Return the evidence "hunks". Notes name the past change that contributed most."""
    evidence = Evidence()
    for piece, value in _weighted(scores.pieces, piece_weight):
        note = _note(table, int(scores.piece_from[piece]))
        evidence.add_piece(piece, Reason(FEATURE, value, note))
    for file, value in _weighted(scores.files, file_weight):
        note = _note(table, int(scores.file_from[file]))
        evidence.add_file(file, Reason(FEATURE, value, note))
    return evidence


def _weighted(scores: NDArray[np.float64], weight: float) -> Iterator[tuple[int, float]]:
    values = scores * weight
    return ((int(number), float(values[number])) for number in np.flatnonzero(values))


def _note(table: HunkTable, occurrence: int) -> str:
    commit = table.commits[int(table.commit[occurrence])][:10]
    place = table.paths[int(table.path[occurrence])]
    lines = f"{int(table.start[occurrence])}-{int(table.end[occurrence])}"
    return f"a similar change, {commit} in {place}:{lines}"
