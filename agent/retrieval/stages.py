"""The first stage of ranking: what needs no embedding server. Gives scored chunks and files.

Signals of everything, candidates by their plain sum, neighbours of the best of them, and then the
learned ranker over the candidates' features. Without the ranker the plain sum decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.retrieval.candidates import all_files, candidate_files
from agent.retrieval.evidence import Evidence, EvidenceSource
from agent.retrieval.explain import Writer
from agent.retrieval.history import cochange_evidence, history_evidence, score_history
from agent.retrieval.identifiers import Terms
from agent.retrieval.lexical import make_bags, make_query
from agent.retrieval.signals import (
    Signals,
    Weights,
    choose_candidates,
    measure,
    normalised,
    told_without_words,
    words_missed,
)
from agent.types import ScoredChunk, ScoredFile

if TYPE_CHECKING:
    import threading

    import numpy as np
    from numpy.typing import NDArray

    from agent.protocols import Snapshot
    from agent.retrieval.corpus import Corpus
    from agent.retrieval.history_store import CommitHistory
    from agent.retrieval.history_table import HistoryTable
    from agent.retrieval.index import Index
    from agent.retrieval.lexical import LexicalQuery
    from agent.retrieval.mentions import Mentions
    from agent.retrieval.options import RetrievalOptions
    from agent.retrieval.ranker import Ranker
    from agent.retrieval.records import PieceEncoder
    from agent.types import Problem

_SEEDS = 30  # pieces by the plain sum whose neighbours are looked at
_FILE_SEEDS = 10


@dataclass(frozen=True, slots=True)
class Ranked:
    """Chunks and files in the order `-score, path, start`; `total` chunks were looked at.

    `notes` say what was missing. `learned`: scores are the ranker's margins. `instead`: what they
    are ordered by, where no word of the problem is found; "" else.
    """

    chunks: tuple[ScoredChunk, ...]
    files: tuple[ScoredFile, ...]
    total: int
    notes: tuple[str, ...] = ()
    learned: bool = False
    instead: str = ""


def in_order(chunks: Sequence[ScoredChunk]) -> tuple[ScoredChunk, ...]:
    """By falling score, then path and position: a total order."""
    return tuple(sorted(chunks, key=lambda c: (-c.score, c.chunk.path, c.chunk.start, c.chunk.end)))


def files_in_order(files: Sequence[ScoredFile]) -> tuple[ScoredFile, ...]:
    """By falling score, then path."""
    return tuple(sorted(files, key=lambda file: (-file.score, file.path)))


def lexical_stage(
    problem: Problem,
    mentions: Mentions,
    snapshot: Snapshot,
    index: Index,
    sources: Sequence[EvidenceSource],
    history: CommitHistory | None,
    ranker: Ranker | None,
    options: RetrievalOptions,
    cancel: threading.Event,
) -> Ranked:
    """Signals, candidates, and their order. Raises `pool.Cancelled`."""
    signals = collect_signals(problem, mentions, snapshot, index, sources, history, options, cancel)
    candidates = choose_candidates(signals, options.max_results)
    writer = Writer(signals, snapshot, options)
    if ranker is None:
        chunks, files = writer.summed(candidates)
    else:
        chunks, files = writer.learned(candidates, ranker)
    return Ranked(
        in_order(chunks),
        files_in_order(files),
        len(signals.corpus.piece_file),
        learned=ranker is not None,
        instead=told_without_words(signals) if words_missed(signals) else "",
    )


def collect_signals(
    problem: Problem,
    mentions: Mentions,
    snapshot: Snapshot,
    index: Index,
    sources: Sequence[EvidenceSource],
    history: CommitHistory | None,
    options: RetrievalOptions,
    cancel: threading.Event,
) -> Signals:
    """Everything the features are read from. Raises `pool.Cancelled`."""
    code_only = options.candidates == "code"
    files = candidate_files(snapshot, problem, mentions) if code_only else all_files(snapshot)
    terms = Terms()
    query = make_query(problem, terms)
    corpus = index.load(snapshot, files, query.hashes, cancel)
    table = _history_table(history, snapshot, options)
    source = Source(snapshot, corpus, index.encoder, table, tuple(sources))
    return signals_over(problem, mentions, source, query, terms, options)


@dataclass(frozen=True, slots=True)
class Source:
    """What queries are asked of: a corpus that holds the postings of their terms, and the rest."""

    snapshot: Snapshot
    corpus: Corpus
    encoder: PieceEncoder | None
    history: HistoryTable | None
    evidence: tuple[EvidenceSource, ...]


def signals_over(
    problem: Problem,
    mentions: Mentions,
    source: Source,
    query: LexicalQuery,
    terms: Terms,
    options: RetrievalOptions,
) -> Signals:
    """The same over a corpus that is loaded: its postings are those of this `query`'s terms."""
    corpus, table = source.corpus, source.history
    evidence = Evidence()
    for find in source.evidence if options.evidence else ():
        found = find(problem, mentions, source.snapshot, corpus)
        evidence.merge(found.without(options.without))
    if table is not None:
        scores = score_history(table, query, corpus)
        evidence.merge(history_evidence(table, scores).without(options.without))
    bags = make_bags(corpus, query, terms)
    weights = Weights(options.file_weight, options.prose_weight, options.file_scores)
    static = _static_cosines(source.encoder, query, corpus, options)
    signals = measure(problem, mentions, corpus, bags, query, evidence, static, weights)
    if options.neighbours:
        _add_neighbours(signals, table, options)
    return signals


def _static_cosines(
    encoder: PieceEncoder | None, query: LexicalQuery, corpus: Corpus, options: RetrievalOptions
) -> NDArray[np.float64] | None:
    from agent.retrieval.static import StaticEncoder, static_cosines

    if not isinstance(encoder, StaticEncoder) or not options.uses_static:
        return None
    return static_cosines(encoder.query(query), corpus.vectors)


def _history_table(
    history: CommitHistory | None, snapshot: Snapshot, options: RetrievalOptions
) -> HistoryTable | None:
    return history.load(snapshot) if history is not None and options.uses_history else None


def _add_neighbours(
    signals: Signals, table: HistoryTable | None, options: RetrievalOptions
) -> None:
    """Features of what stands around the best by the plain sum, added to the evidence."""
    from agent.retrieval.graph import neighbours

    best = choose_candidates(signals, _SEEDS)
    pieces = normalised(signals.pieces[best.pieces])
    files = normalised(signals.files[best.files])
    found = neighbours(
        signals.corpus,
        dict(zip(best.pieces.tolist(), pieces.tolist(), strict=True)),
        dict(zip(best.files[:_FILE_SEEDS].tolist(), files[:_FILE_SEEDS].tolist(), strict=True)),
    )
    if table is not None:
        found.merge(cochange_evidence(table, signals.corpus, best.files[:_FILE_SEEDS].tolist()))
    signals.evidence.merge(found.without(options.without))
