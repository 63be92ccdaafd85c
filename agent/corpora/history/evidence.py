"""Past hunks as evidence: what was changed where words like the problem's were written before.

The hunks that are most similar to the problem (BM25 over their texts, as in
`agent.retrieval.lexical`) give their similarity to the file and the functions of today that they
stand in: paths are followed through renames, functions by name or else by their lines. A commit
that touched many functions says less of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.corpora.history.following import LineFollower
from agent.corpora.history.store import NoHistory
from agent.errors import RepositoryError
from agent.retrieval.evidence import Evidence
from agent.retrieval.history import LocalNames, spread_shares
from agent.retrieval.identifiers import Terms
from agent.retrieval.lexical import K1, inverse_frequency, length_norm, make_query
from agent.types import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.corpora.history.store import HunkHistory
    from agent.corpora.history.table import HunkTable
    from agent.protocols import Snapshot
    from agent.retrieval.corpus import Corpus
    from agent.retrieval.lexical import LexicalQuery
    from agent.retrieval.mentions import Mentions
    from agent.types import Problem

FEATURE = "hunks"
"""Of files and pieces; also the group that `--without` leaves out."""

PIECE_WEIGHT = 0.3
FILE_WEIGHT = 0.0
"""Measured on 122 issues to tune on: for functions nothing is lost, files get worse at the top."""

MAX_FILES = 12
"""Hunks of a commit of more files are part of a sweep; as for messages (`retrieval.history`)."""

MAX_SIMILAR = 30  # occurrences: what comes later shares common words only


@dataclass(frozen=True, slots=True)
class HunkEvidence:
    """The `EvidenceSource` of past hunks: feature "hunks" of pieces and files.

    Weights are of the best piece and the best file, where the best chunk by words has 1; at 0
    nothing is said.
    """

    history: HunkHistory
    piece_weight: float = PIECE_WEIGHT
    file_weight: float = FILE_WEIGHT

    def __call__(
        self, problem: Problem, _mentions: Mentions, snapshot: Snapshot, corpus: Corpus, /
    ) -> Evidence:
        """Nothing where there is no history. Raises `pool.Cancelled`."""
        table = self.history.table(snapshot)
        query = make_query(problem, Terms())
        lines = _Lines(self.history, snapshot, table, LineFollower(snapshot, corpus))
        scores = score_hunks(table, query, corpus, lines.follow)
        return evidence_of(table, scores, self.piece_weight, self.file_weight)


@dataclass(slots=True)
class _Lines:
    """Pieces of today that hold the lines of an occurrence."""

    history: HunkHistory
    snapshot: Snapshot
    table: HunkTable
    follower: LineFollower

    def follow(self, lost: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Occurrence and piece, given the occurrences to look for and the file of each."""
        if not lost:
            return
        ids = {occurrence: self._commit(occurrence) for occurrence in lost}
        try:
            commits = self.history.some(self.snapshot, dict.fromkeys(ids.values()))
        except (NoHistory, RepositoryError):
            return  # the cache was cleared just now, and the repository is gone
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
    """For the f files and n pieces of a corpus; each array's maximum is 1, or all of it is 0.

    `files` float64 (f,), `pieces` float64 (n,); `file_from` int64 (f,), `piece_from` int64 (n,):
    the occurrence that contributed most, -1 for none.
    """

    files: NDArray[np.float64]
    pieces: NDArray[np.float64]
    file_from: NDArray[np.int64]
    piece_from: NDArray[np.int64]


def similarities(table: HunkTable, query: LexicalQuery) -> NDArray[np.float64]:
    """BM25 of each distinct text, float64 (d,)."""
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
    """Occurrences by falling similarity, then from the newest; of small enough commits only."""
    scores = np.where(table.sizes[table.commit] <= max_files, similar[table.text], 0.0)
    best = np.lexsort((np.arange(scores.size), -scores))[:limit]
    return np.asarray(best[scores[best] > 0.0], dtype=np.int64)


Follow = Callable[[Mapping[int, int]], Iterable[tuple[int, int]]]
"""From occurrences without a piece, and the file of each, to pairs of occurrence and piece."""


def score_hunks(
    table: HunkTable, query: LexicalQuery, corpus: Corpus, follow: Follow | None = None
) -> HunkScores:
    """What past hunks say of each file and piece of the corpus, given the problem's terms."""
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
    """(o,) the file of today that each occurrence stands in, -1 for none."""
    numbers = {file.path: number for number, file in enumerate(corpus.files)}
    of_path = np.array([numbers.get(path, -1) for path in table.paths], dtype=np.int64)
    return of_path[table.today] if table.today.size else np.empty(0, dtype=np.int64)


def _by_name(
    table: HunkTable, corpus: Corpus, file_of: NDArray[np.int64], shares: NDArray[np.float64]
) -> list[tuple[int, int, float]]:
    """Piece, occurrence and part of its share for each function that a similar hunk stands in.

    A name that several pieces of the file bear means each of them in equal parts.
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
    """The same for hunks without such a function, in equal parts for all pieces of a hunk."""
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
    """Feature "hunks" of pieces and files. Notes name the past change that contributed most."""
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
