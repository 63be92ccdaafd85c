"""Commit history as evidence: code that commits with similar messages changed.

The problem is matched with the messages of past commits (BM25, as in
`agent.retrieval.ranking.lexical`). The files and functions that the best commits changed get a
share of their score, similar to version-history bug localisation (Wang & Lo, "Version History,
Similar Report, and Structure", ICPC 2014). Only the snapshot's own commit and its ancestors are
read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.history import MAX_HUNK_FILES
from agent.retrieval.ranking.evidence import Evidence
from agent.retrieval.ranking.lexical import K1, inverse_frequency, length_norm
from agent.types import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.history import HistoryTable
    from agent.retrieval.index import Corpus
    from agent.retrieval.ranking.lexical import LexicalQuery

MAX_FILES = MAX_HUNK_FILES
"""Commits with more files are skipped: they are releases, renames or reformattings."""

MAX_SIMILAR = 30  # commits; later ones share common words only (20 and 100 do worse)
HALF_LIFE = 500.0  # number of later commits after which a change counts half in the churn
_COCHANGE_PRIOR = 3.0  # changes; keeps the index low for two files that changed together only once


@dataclass(frozen=True, slots=True)
class HistoryScores:
    """Scores of the f files and n pieces of a corpus; each array's maximum is 1, or all of it is 0.

    `files` float64 (f,) and `pieces` float64 (n,): similarity of the commits that changed it.
    `file_commit` int64 (f,) and `piece_commit` int64 (n,): the commit of the table that contributed
    most, -1 for none. `churn` float64 (f,): how often and how recently the file changed, on a log
    scale.
    """

    files: NDArray[np.float64]
    pieces: NDArray[np.float64]
    file_commit: NDArray[np.int64]
    piece_commit: NDArray[np.int64]
    churn: NDArray[np.float64]


def score_history(table: HistoryTable, query: LexicalQuery, corpus: Corpus) -> HistoryScores:
    """Score each file and piece of the corpus by the history, given the problem's terms."""
    similar = similarities(table, query)
    shares = _shares(table, similar)
    path_file = _files_of_paths(table, corpus)
    files, file_commit = _spread_shares(
        path_file[table.touch_path], table.touch_commit, shares, len(corpus.files)
    )
    owner, commit, part = _piece_touches(table, corpus, path_file, shares)
    pieces, piece_commit = _spread_shares(owner, commit, shares, len(corpus.pieces), part)
    churn = _churn(table, path_file, len(corpus.files))
    return HistoryScores(files, pieces, file_commit, piece_commit, churn)


def similarities(table: HistoryTable, query: LexicalQuery) -> NDArray[np.float64]:
    """Return the BM25 of each commit's message, float64 (c,).

    Commits that changed no file or too many have 0; rarity and mean length leave them out.
    """
    counted = (table.sizes >= 1) & (table.sizes <= MAX_FILES)
    if not counted.any() or not query.hashes.size or not table.vocabulary.size:
        return np.zeros(table.sizes.size)
    term = _query_terms(table.vocabulary, query)[table.word]
    kept = (term >= 0) & counted[table.word_commit]
    owner, term, count = table.word_commit[kept], term[kept], table.word_count[kept]
    number = int(counted.sum())
    documents = np.bincount(term, minlength=query.hashes.size)
    rarity = inverse_frequency(number, documents)
    norm = length_norm(table.lengths, float(table.lengths[counted].mean()))
    gains = query.weights[term] * rarity[term] * count * (K1 + 1) / (count + norm[owner])
    return np.bincount(owner, gains, table.sizes.size).astype(np.float64)


def _query_terms(vocabulary: NDArray[np.uint64], query: LexicalQuery) -> NDArray[np.int64]:
    """Return each word's number in the query, -1 for none."""
    found = np.full(vocabulary.size, -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(vocabulary, query.hashes), vocabulary.size - 1)
    hits = np.flatnonzero(vocabulary[at] == query.hashes)
    found[at[hits]] = hits
    return found


def _shares(table: HistoryTable, similar: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the score that each file of a commit gets, float64 (c,): less for more files."""
    best = np.lexsort((np.arange(similar.size), -similar))[:MAX_SIMILAR]
    best = best[similar[best] > 0]
    shares = np.zeros(similar.size)
    if best.size:
        shares[best] = similar[best] / similar[best[0]] / np.sqrt(table.sizes[best])
    return shares


def _spread_shares(
    owner: NDArray[np.int64],
    commit: NDArray[np.int64],
    shares: NDArray[np.float64],
    count: int,
    part: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sum the commits' shares by owner (-1: no owner) and scale them to a maximum of 1.

    Also returns the commit that contributed most to each owner.
    """
    gains = shares[commit] if part is None else shares[commit] * part
    kept = (owner >= 0) & (gains > 0)
    owner, commit, gains = owner[kept], commit[kept], gains[kept]
    sums = np.bincount(owner, gains, count).astype(np.float64)
    best = np.full(count, -1, dtype=np.int64)
    # Rising order of gain, and the newer of two equal commits last: the last one written stays.
    order = np.lexsort((-commit, gains))
    best[owner[order]] = commit[order]
    top = float(sums.max(initial=0.0))
    return (sums / top if top > 0 else sums), best


def _files_of_paths(table: HistoryTable, corpus: Corpus) -> NDArray[np.int64]:
    """Return the file number of each path of the table, -1 where the corpus lacks it."""
    numbers = {file.path: number for number, file in enumerate(corpus.files)}
    return np.array([numbers.get(path, -1) for path in table.paths], dtype=np.int64)


def _piece_touches(
    table: HistoryTable,
    corpus: Corpus,
    path_file: NDArray[np.int64],
    shares: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return piece, commit and share for each function that a similar commit changed.

    If several pieces of the file have the name, the share is divided equally among them.
    """
    rows: list[tuple[int, int, float]] = []
    names = _LocalNames(corpus)
    for row in np.flatnonzero(shares[table.function_commit] > 0):
        file = int(path_file[table.function_path[row]])
        pieces = names.find(file, table.names[int(table.function_name[row])])
        commit = int(table.function_commit[row])
        rows.extend((piece, commit, 1.0 / len(pieces)) for piece in pieces)
    owner, commits, part = zip(*rows, strict=True) if rows else ((), (), ())
    return (
        np.array(owner, dtype=np.int64),
        np.array(commits, dtype=np.int64),
        np.array(part, dtype=np.float64),
    )


class _LocalNames:
    """Pieces by file and name. Each file is read once."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._files: dict[int, defaultdict[str, list[int]]] = {}

    def find(self, file: int, name: str) -> Sequence[int]:
        """Return the pieces of a file whose symbol is, or ends with, this name."""
        if file < 0:
            return ()
        if file not in self._files:
            by_name: defaultdict[str, list[int]] = defaultdict(list)
            for number, piece in self._corpus.pieces_of(file):
                if piece.symbol:
                    by_name[piece.symbol.rpartition(".")[2]].append(number)
            self._files[file] = by_name
        return self._files[file].get(name, ())


def _churn(table: HistoryTable, path_file: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return log(1 + number of changes), scaled to a maximum of 1.

    The weight of a change halves after each HALF_LIFE commits.
    """
    owner = path_file[table.touch_path]
    kept = owner >= 0
    weights = 0.5 ** (table.touch_commit[kept] / HALF_LIFE)
    churn = np.log1p(np.bincount(owner[kept], weights, count))
    top = float(churn.max(initial=0.0))
    return churn / top if top > 0 else churn


def cochange(table: HistoryTable, paths: Iterable[str]) -> Mapping[str, float]:
    """Return the files that changed together with the given ones in commits of up to MAX_FILES
    files.

    The value is Jaccard's index, |both| / (|either| + prior), the highest over the given paths. The
    given paths are left out. The order is by falling score, then path.
    """
    numbers = {path: number for number, path in enumerate(table.paths)}
    small = table.sizes[table.touch_commit] <= MAX_FILES
    commit, path = table.touch_commit[small], table.touch_path[small]
    changes = np.bincount(path, minlength=len(table.paths)).astype(np.float64)
    seeds = sorted({numbers[path] for path in paths if path in numbers})
    best = np.zeros(len(table.paths))
    for seed in seeds:
        with_seed = np.zeros(len(table.commits), dtype=bool)
        with_seed[commit[path == seed]] = True
        both = np.bincount(path[with_seed[commit]], minlength=len(table.paths))
        either = changes + changes[seed] - both
        np.maximum(best, both / (either + _COCHANGE_PRIOR), out=best)
    best[seeds] = 0.0
    found = [(float(best[n]), table.paths[n]) for n in np.flatnonzero(best)]
    return {path: score for score, path in sorted(found, key=lambda pair: (-pair[0], pair[1]))}


def cochange_evidence(table: HistoryTable, corpus: Corpus, seeds: Sequence[int]) -> Evidence:
    """Return feature "cochange": files that changed together with the seeds (file numbers)."""
    evidence = Evidence()
    paths = [corpus.files[seed].path for seed in seeds]
    numbers = {file.path: number for number, file in enumerate(corpus.files)}
    for path, value in cochange(table, paths).items():
        if path in numbers:
            reason = Reason("cochange", value, "used to change together with the best")
            evidence.add_file(numbers[path], reason)
    return evidence


def history_evidence(table: HistoryTable, scores: HistoryScores) -> Evidence:
    """Return features "history" and "churn" of files and "history-function" of pieces.

    Each note names the commit that contributed most.
    """
    evidence = Evidence()
    for file in np.flatnonzero(scores.churn):
        evidence.add_file(int(file), Reason("churn", float(scores.churn[file]), "changes often"))
    for file in np.flatnonzero(scores.files):
        note = f"changed by a similar commit, {_named(table, int(scores.file_commit[file]))}"
        evidence.add_file(int(file), Reason("history", float(scores.files[file]), note))
    for piece in np.flatnonzero(scores.pieces):
        note = f"changed by a similar commit, {_named(table, int(scores.piece_commit[piece]))}"
        reason = Reason("history-function", float(scores.pieces[piece]), note)
        evidence.add_piece(int(piece), reason)
    return evidence


def _named(table: HistoryTable, commit: int) -> str:
    return f"{table.commits[commit][:10]}: {table.subjects[commit]}"
