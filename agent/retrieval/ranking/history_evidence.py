"""Commit history as evidence: code that commits with similar messages changed (BM25), similar to
version-history bug localisation (Wang & Lo, "Version History, Similar Report, and Structure", ICPC
2014).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.history import MAX_HUNK_FILES
from agent.retrieval.ranking.evidence import Evidence, keep_best
from agent.retrieval.ranking.lexical import K1, inverse_frequency, length_norm
from agent.retrieval.ranking.signals import normalised
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


def history_evidence(table: HistoryTable, query: LexicalQuery, corpus: Corpus) -> Evidence:
    """Return features "history" and "churn" of files, "history-function" of pieces."""
    evidence = Evidence()
    shares = _shares(table, similarities(table, query))
    numbers = _file_numbers(corpus)
    path_file = np.array([numbers.get(path, -1) for path in table.paths], dtype=np.int64)
    file = path_file[table.touch_path]
    recency = 0.5 ** (table.touch_commit[file >= 0] / HALF_LIFE)
    churn = normalised(np.log1p(np.bincount(file[file >= 0], recency, len(corpus.files))))
    for number in np.flatnonzero(churn).tolist():
        keep_best(evidence.files[number], Reason("churn", float(churn[number]), "changes often"))
    touched = np.flatnonzero(shares[table.touch_commit] > 0)
    files = ((int(file[row]), int(table.touch_commit[row]), 1.0) for row in touched)
    for number, value, note in _summed(table, shares, files):
        keep_best(evidence.files[number], Reason("history", value, note))
    pieces = _piece_touches(table, corpus, path_file, shares)
    for number, value, note in _summed(table, shares, pieces):
        keep_best(evidence.pieces[number], Reason("history-function", value, note))
    return evidence


def _file_numbers(corpus: Corpus) -> dict[str, int]:
    return {file.path: number for number, file in enumerate(corpus.files)}


def similarities(table: HistoryTable, query: LexicalQuery) -> NDArray[np.float64]:
    """Return the BM25 of each commit's message, float64 (c,)."""
    counted = (table.sizes >= 1) & (table.sizes <= MAX_FILES)
    if not counted.any() or not query.hashes.size or not table.vocabulary.size:
        return np.zeros(table.sizes.size)
    numbers = np.full(table.vocabulary.size, -1, dtype=np.int64)  # of each word in the query
    at = np.minimum(np.searchsorted(table.vocabulary, query.hashes), table.vocabulary.size - 1)
    hits = np.flatnonzero(table.vocabulary[at] == query.hashes)
    numbers[at[hits]] = hits
    term = numbers[table.word]
    matching = (term >= 0) & counted[table.word_commit]
    owner, term = table.word_commit[matching], term[matching]
    count = table.word_count[matching]
    documents = np.bincount(term, minlength=query.hashes.size)
    rarity = inverse_frequency(int(counted.sum()), documents)
    norm = length_norm(table.lengths, float(table.lengths[counted].mean()))
    gains = query.weights[term] * rarity[term] * count * (K1 + 1) / (count + norm[owner])
    return np.bincount(owner, gains, table.sizes.size).astype(np.float64)


def _shares(table: HistoryTable, similar: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the score that each file of a commit gets, float64 (c,): less for more files."""
    best = np.lexsort((np.arange(similar.size), -similar))[:MAX_SIMILAR]
    best = best[similar[best] > 0]
    shares = np.zeros(similar.size)
    if best.size:
        shares[best] = similar[best] / similar[best[0]] / np.sqrt(table.sizes[best])
    return shares


def _summed(
    table: HistoryTable, shares: NDArray[np.float64], touches: Iterable[tuple[int, int, float]]
) -> Iterator[tuple[int, float, str]]:
    """Yield each owner (-1 is none) with its part of the shares of commits, at most 1."""
    sums: defaultdict[int, float] = defaultdict(float)
    best: dict[int, tuple[float, int]] = {}  # the newer of two equal commits
    for owner, commit, part in touches:
        if owner >= 0:
            gain = float(shares[commit]) * part
            sums[owner] += gain
            best[owner] = max(best.get(owner, (0.0, 0)), (gain, -commit))
    top = max(sums.values(), default=1.0)
    for owner in sorted(sums):
        commit = -best[owner][1]
        name = f"{table.commits[commit][:10]}: {table.subjects[commit]}"
        yield owner, sums[owner] / top, f"changed by a similar commit, {name}"


def _piece_touches(
    table: HistoryTable,
    corpus: Corpus,
    path_file: NDArray[np.int64],
    shares: NDArray[np.float64],
) -> Iterator[tuple[int, int, float]]:
    """Yield piece, commit and share for each function that a similar commit changed."""

    @cache
    def _named(file: int) -> dict[str, list[int]]:
        by_name: defaultdict[str, list[int]] = defaultdict(list)
        for number, piece in corpus.pieces_of(file) if file >= 0 else ():
            if piece.symbol:
                by_name[piece.symbol.rpartition(".")[2]].append(number)
        return by_name

    for row in np.flatnonzero(shares[table.function_commit] > 0):
        name = table.names[int(table.function_name[row])]
        pieces = _named(int(path_file[table.function_path[row]])).get(name, ())
        for piece in pieces:
            yield piece, int(table.function_commit[row]), 1.0 / len(pieces)


def cochange(table: HistoryTable, paths: Iterable[str]) -> dict[str, float]:
    """Return other files that changed together with these, by the highest Jaccard index with a
    prior.
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
    values = {table.paths[n]: float(best[n]) for n in np.flatnonzero(best)}
    return dict(sorted(values.items(), key=lambda pair: (-pair[1], pair[0])))


def cochange_evidence(table: HistoryTable, corpus: Corpus, seeds: Sequence[int]) -> Evidence:
    """Return feature "cochange": files that changed together with the seeds (file numbers)."""
    evidence = Evidence()
    numbers = _file_numbers(corpus)
    for path, value in cochange(table, [corpus.files[seed].path for seed in seeds]).items():
        if path in numbers:
            reason = Reason("cochange", value, "used to change together with the best")
            keep_best(evidence.files[numbers[path]], reason)
    return evidence
