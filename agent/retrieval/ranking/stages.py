"""The first stage of ranking, which needs no embedding server. It selects candidates by the plain
sum of signals, adds the neighbours of the best, and orders them with the learned ranker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import (
    WORD,
    Piece,
    Terms,
    TreeSitterChunker,
    all_files,
    is_target,
    split_lines,
)
from agent.retrieval.ranking.evidence import mention_evidence
from agent.retrieval.ranking.history_evidence import cochange_evidence, history_evidence
from agent.retrieval.ranking.lexical import make_bags, make_query
from agent.retrieval.ranking.signals import (
    AROUND,
    EVIDENCE_WEIGHTS,
    STATIC_WEIGHT,
    Signals,
    choose_candidates,
    file_matrix,
    measure,
    normalised,
    piece_matrix,
)
from agent.shared.workers import Cancelled
from agent.types import DEFINITIONS, ChunkKind, Reason, ScoredChunk, ScoredFile

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from agent.retrieval.history import CommitHistory, HistoryTable
    from agent.retrieval.index import Corpus, Index, PieceEncoder
    from agent.retrieval.ranking.lexical import LexicalQuery
    from agent.retrieval.ranking.mentions import Mentions
    from agent.retrieval.ranking.ranker import Ranker
    from agent.types import Problem, SourceFile
    from agent.types.protocols import Snapshot

_SEEDS = 30  # best pieces by the plain sum whose neighbours are added
_FILE_SEEDS = 10
NO_WORDS = "no word of the problem occurs in the code: ordered by other signals"
UNRANKED = -1.0
"""Score of a chunk without a vector if only the cosine decides: below every real cosine."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Chunks and files in total order. `learned`: scores are the ranker's margins."""

    chunks: tuple[ScoredChunk, ...]
    files: tuple[ScoredFile, ...]
    total: int
    notes: tuple[str, ...] = ()
    learned: bool = False


def in_order(chunks: Iterable[ScoredChunk]) -> tuple[ScoredChunk, ...]:
    """Sort by falling score, then path and position: a total order."""
    return tuple(sorted(chunks, key=lambda c: (-c.score, c.chunk.path, c.chunk.start, c.chunk.end)))


def files_in_order(files: Iterable[ScoredFile]) -> tuple[ScoredFile, ...]:
    """Sort by falling score, then path."""
    return tuple(sorted(files, key=lambda file: (-file.score, file.path)))


def order_candidates(
    signals: Signals, snapshot: Snapshot, ranker: Ranker | None, limit: int
) -> Ranked:
    """Select the `limit` best chunks and files by the plain sum, and order them by the ranker."""
    pieces, numbers = choose_candidates(signals, limit)
    chunks = in_order(_scored_chunks(signals, pieces, snapshot, ranker))
    files = files_in_order(_scored_files(signals, numbers, ranker))
    texts = signals.piece_columns["bm25"], signals.file_columns["file-bm25"]
    missed = signals.query["query-terms"] > 0.0 and not any(scores.any() for scores in texts)
    notes = (NO_WORDS,) if missed and chunks else ()
    return Ranked(chunks, files, len(signals.corpus.piece_file), notes, ranker is not None)


def collect_signals(
    problem: Problem,
    mentions: Mentions,
    snapshot: Snapshot,
    index: Index,
    history: CommitHistory | None,
    cancel: threading.Event,
) -> Signals:
    """Measure everything that features are computed from. Raises Cancelled."""
    files = candidate_files(snapshot, problem, mentions)
    terms = Terms()
    query = make_query(problem, terms)
    corpus = index.load(snapshot, files, query.hashes, cancel)
    table = None if history is None else history.table(snapshot)
    signals = signals_over(problem, mentions, corpus, query, terms, index.encoder, table)
    _add_neighbours(signals, table)
    return signals


def signals_over(
    problem: Problem,
    mentions: Mentions,
    corpus: Corpus,
    query: LexicalQuery,
    terms: Terms,
    encoder: PieceEncoder | None,
    table: HistoryTable | None = None,
) -> Signals:
    """Like `collect_signals`, without neighbours, for a loaded corpus with the query's postings."""
    evidence = mention_evidence(mentions, corpus)
    if table is not None:
        evidence.merge(history_evidence(table, query, corpus))
    bags = make_bags(corpus, query, terms)
    static = _static_cosines(encoder, query, corpus)
    return measure(problem, mentions, corpus, bags, query, evidence, static)


def _static_cosines(
    encoder: PieceEncoder | None, query: LexicalQuery, corpus: Corpus
) -> NDArray[np.float64] | None:
    from agent.retrieval.embedding import StaticEncoder, static_cosines

    if not isinstance(encoder, StaticEncoder):
        return None
    vector = encoder.query(query.hashes, query.weights)
    return np.concatenate([np.empty(0), *(static_cosines(vector, v) for v in corpus.vectors)])


def _add_neighbours(signals: Signals, table: HistoryTable | None) -> None:
    from agent.retrieval.ranking.graph import neighbours

    best, best_files = choose_candidates(signals, _SEEDS)
    pieces = normalised(signals.pieces[best])
    files = normalised(signals.files[best_files])
    first = best_files[:_FILE_SEEDS].tolist()
    related = neighbours(
        signals.corpus,
        dict(zip(best.tolist(), pieces.tolist(), strict=True)),
        dict(zip(first, files.tolist(), strict=False)),
    )
    if table is not None:
        related.merge(cochange_evidence(table, signals.corpus, first))
    signals.evidence.merge(related)


RANKER = "ranker"
"""The feature of the reason that says what the trees add to the plain sum."""

# Features of the plain sum, with the columns that they are taken from and their weights.
_FILE_PARTS = (
    ("best-chunk", "file-best", 1.0),
    ("lexical", "file-bm25", 1.0),
    ("static", "file-static", STATIC_WEIGHT),
)
_PIECE_PARTS = (("lexical", "bm25", 1.0), ("static", "static", STATIC_WEIGHT))


def _scored_chunks(
    signals: Signals, numbers: NDArray[np.int64], snapshot: Snapshot, ranker: Ranker | None
) -> Iterator[ScoredChunk]:
    corpus, pieces = signals.corpus, numbers.tolist()
    starts, changes = signals.pieces[numbers], np.zeros(numbers.size)
    if ranker is not None:
        rows = piece_matrix(signals, numbers)
        # Pieces without a name were never answers in the training data: the trees are ignored.
        named = np.array([bool(corpus.symbols[number]) for number in pieces], dtype=bool)
        starts = ranker.pieces.starts(rows)
        changes = np.where(named, ranker.pieces.corrections(rows), 0.0)
    lines, shares = _lines(corpus, pieces, snapshot), normalised(signals.files)
    for number, start, change in zip(pieces, starts.tolist(), changes.tolist(), strict=True):
        owner = int(corpus.piece_file[number])
        source = corpus.files[owner]
        parts = [
            *_parts(signals.piece_columns, _PIECE_PARTS, number),
            Reason("file", float(shares[owner])),
            *_weighted(signals.evidence.pieces.get(number, {})),
        ]
        chunk = corpus.pieces[number].chunk(source, lines[source.path])
        yield ScoredChunk(chunk, start + change, _reasons(parts, start, change))


def _scored_files(
    signals: Signals, numbers: NDArray[np.int64], ranker: Ranker | None
) -> Iterator[ScoredFile]:
    starts, changes = signals.files[numbers], np.zeros(numbers.size)
    if ranker is not None:
        rows = file_matrix(signals, numbers)
        starts, changes = ranker.files.starts(rows), ranker.files.corrections(rows)
    scores = zip(numbers.tolist(), starts.tolist(), changes.tolist(), strict=True)
    for number, start, change in scores:
        parts = [
            *_parts(signals.file_columns, _FILE_PARTS, number),
            *_weighted(signals.evidence.files.get(number, {})),
        ]
        path = signals.corpus.files[number].path
        yield ScoredFile(path, start + change, _reasons(parts, start, change))


def _lines(corpus: Corpus, pieces: Iterable[int], snapshot: Snapshot) -> dict[str, list[str]]:
    ends: dict[str, int] = {}
    for number in pieces:
        path = corpus.path_of(number)
        ends[path] = max(ends.get(path, 0), corpus.pieces[number].end)
    return {path: snapshot.text(path).split("\n", end) for path, end in ends.items()}


def _parts(
    columns: Mapping[str, NDArray[np.float64]],
    parts: Sequence[tuple[str, str, float]],
    number: int,
) -> list[Reason]:
    return [
        Reason(feature, weight * float(columns[name][number]))
        for feature, name, weight in parts
        if name in columns
    ]


def _weighted(features: Mapping[str, Reason]) -> list[Reason]:
    return [
        replace(reason, value=reason.value * EVIDENCE_WEIGHTS.get(reason.feature, 1.0))
        for reason in features.values()
        if reason.feature not in AROUND
    ]


def _reasons(parts: Sequence[Reason], start: float, change: float) -> tuple[Reason, ...]:
    total = sum(part.value for part in parts)
    scale = start / total if total > 0.0 else 0.0
    reasons = [replace(part, value=part.value * scale) for part in parts]
    reasons.append(Reason(RANKER, change, "learned from past fixes"))
    telling = (reason for reason in reasons if reason.value)
    return tuple(sorted(telling, key=lambda reason: (-reason.value, reason.feature)))


def overlap_stage(
    problem: Problem, snapshot: Snapshot, limit: int, cancel: threading.Event
) -> Ranked:
    """Return the files and functions that share the most words. Raises Cancelled."""
    words = frozenset(problem.text.lower().split())
    chunker = TreeSitterChunker()
    chunks: list[ScoredChunk] = []
    files: list[ScoredFile] = []
    for file in all_files(snapshot):
        if cancel.is_set():
            raise Cancelled
        if not file.path.endswith(".py"):
            continue
        text = snapshot.text(file.path)
        lines = split_lines(text)
        own = [Piece(1, len(lines), "", ChunkKind.MODULE).chunk(file, lines)] if lines else []
        own += (chunk for chunk in chunker(file, text) if chunk.kind in DEFINITIONS)
        shared = [float(len(words.intersection(chunk.text.lower().split()))) for chunk in own]
        for chunk, count in zip(own, shared, strict=True):
            chunks.append(ScoredChunk(chunk, count, (Reason("overlap", count),) if count else ()))
        best = max(shared, default=0.0)
        files.append(ScoredFile(file.path, best, (Reason("overlap", best),)))
    return Ranked(in_order(chunks)[:limit], files_in_order(files)[:limit], len(chunks))


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in WORD.findall(text))


def by_cosine(first: Ranked, cosines: NDArray[np.float64]) -> Ranked:
    """Return the first n chunks and their files, ordered by the cosines (n,) alone."""
    values = np.nan_to_num(cosines, nan=UNRANKED).tolist()
    chunks: list[ScoredChunk] = []
    best: dict[str, float] = {}
    for scored, cosine in zip(first.chunks, values, strict=False):
        chunks.append(ScoredChunk(scored.chunk, cosine, (Reason("cosine", cosine),)))
        path = scored.chunk.path
        best[path] = max(cosine, best.get(path, UNRANKED))
    files = [
        ScoredFile(file.path, best[file.path], (Reason("cosine", best[file.path]),))
        for file in first.files
        if file.path in best
    ]
    return replace(first, chunks=in_order(chunks), files=files_in_order(files))


_ABOUT_TESTS = frozenset({"test", "tests", "testsuite", "flaky", "pytest", "unittest", "fixture"})


def candidate_files(
    snapshot: Snapshot, problem: Problem, mentions: Mentions
) -> tuple[SourceFile, ...]:
    """Return files in path order without tests, vendored and generated code that is not named."""
    files = all_files(snapshot)
    about_tests = not _ABOUT_TESTS.isdisjoint(_words(problem.title))
    named = {m.path for m in mentions.paths if about_tests or m.path in problem.title}
    ends = tuple(f"/{path}" for path in named)
    chosen = tuple(
        file
        for file in files
        if is_target(file.path) or file.path in named or file.path.endswith(ends)
    )
    return chosen or files
