"""The first stage of ranking: what needs no embedding server. Gives scored chunks and files.

Signals of everything, candidates by their plain sum, neighbours of the best of them, and then the
learned ranker over the candidates' features. Without the ranker the plain sum decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.candidates import all_files, candidate_files
from agent.retrieval.chunking import split_lines
from agent.retrieval.evidence import Evidence, EvidenceSource
from agent.retrieval.features import FILE_NAMES, GROUP_OF, PIECE_NAMES
from agent.retrieval.history import cochange_evidence, history_evidence, score_history
from agent.retrieval.identifiers import Terms
from agent.retrieval.lexical import make_bags, make_query
from agent.retrieval.signals import (
    Candidates,
    Signals,
    Weights,
    choose_candidates,
    file_matrix,
    measure,
    normalised,
    piece_matrix,
    ranks,
)
from agent.types import Reason, ScoredChunk, ScoredFile

if TYPE_CHECKING:
    import threading

    from numpy.typing import NDArray

    from agent.protocols import Snapshot
    from agent.retrieval.corpus import Corpus
    from agent.retrieval.history_store import CommitHistory
    from agent.retrieval.history_table import HistoryTable
    from agent.retrieval.index import Index
    from agent.retrieval.lexical import LexicalQuery
    from agent.retrieval.mentions import Mentions
    from agent.retrieval.options import RetrievalOptions
    from agent.retrieval.ranker import Ensemble, Ranker
    from agent.retrieval.records import PieceEncoder
    from agent.types import Problem

_SEEDS = 30  # pieces by the plain sum whose neighbours are looked at
_FILE_SEEDS = 10
_FROM_HISTORY = frozenset({"history", "churn", "cochange"})


@dataclass(frozen=True, slots=True)
class Ranked:
    """Chunks and files in the order `-score, path, start`; `total` chunks were looked at."""

    chunks: tuple[ScoredChunk, ...]
    files: tuple[ScoredFile, ...]
    total: int


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
    writer = _Writer(signals, snapshot)
    if ranker is None:
        chunks = [writer.summed_chunk(number, options) for number in candidates.pieces.tolist()]
        files = [writer.summed_file(number) for number in candidates.files.tolist()]
    else:
        chunks, files = writer.learned(candidates, ranker, options.without)
    return Ranked(in_order(chunks), files_in_order(files), len(signals.corpus.piece_file))


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
    evidence = Evidence()
    for source in sources if options.evidence else ():
        evidence.merge(source(problem, mentions, snapshot, corpus).without(options.without))
    table = _history_table(history, snapshot, options)
    if table is not None:
        scores = score_history(table, problem, corpus, terms)
        evidence.merge(history_evidence(table, scores).without(options.without))
    bags = make_bags(corpus, query, terms)
    weights = Weights(options.file_weight, options.prose_weight, options.file_scores)
    static = _static_cosines(index.encoder, query, corpus, options)
    signals = measure(problem, mentions, corpus, bags, query, evidence, static, weights)
    if options.neighbours:
        _add_neighbours(signals, table, options)
    return signals


def _static_cosines(
    encoder: PieceEncoder | None, query: LexicalQuery, corpus: Corpus, options: RetrievalOptions
) -> NDArray[np.float64] | None:
    from agent.retrieval.static import StaticEncoder, static_cosines

    if not isinstance(encoder, StaticEncoder) or "static" in options.without:
        return None
    return static_cosines(encoder.query(query), corpus.vectors)


def _history_table(
    history: CommitHistory | None, snapshot: Snapshot, options: RetrievalOptions
) -> HistoryTable | None:
    if history is None or not options.evidence or options.without >= _FROM_HISTORY:
        return None
    return history.load(snapshot)


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


class _Writer:
    """Turns numbers of pieces and files into scored chunks and files with their reasons."""

    def __init__(self, signals: Signals, snapshot: Snapshot) -> None:
        self._signals = signals
        self._corpus = signals.corpus
        self._lines = _Lines(snapshot)
        self._piece_ranks = ranks(signals.piece_columns["bm25"])
        self._file_ranks = ranks(signals.files)

    # ------------------------------------------------------------------------------- the plain sum

    def summed_chunk(self, number: int, options: RetrievalOptions) -> ScoredChunk:
        signals, file = self._signals, int(self._corpus.piece_file[number])
        reasons = [self._lexical(number, float(signals.piece_columns["bm25"][number]))]
        if options.file_scores:
            share = options.file_weight * float(normalised(signals.files)[file])
            reasons.append(Reason("file", share, self._file_note(file)))
        reasons.extend(_sorted_reasons(signals.evidence.pieces.get(number)))
        return self._chunk(number, reasons)

    def summed_file(self, number: int) -> ScoredFile:
        columns = self._signals.file_columns
        reasons = (
            Reason("best-chunk", float(columns["file-best"][number]), "its best chunk's words"),
            Reason("lexical", float(columns["file-bm25"][number]), "words of the whole file"),
            *_sorted_reasons(self._signals.evidence.files.get(number)),
        )
        return self._file(number, reasons)

    # ---------------------------------------------------------------------------- the learned order

    def learned(
        self, candidates: Candidates, ranker: Ranker, without: frozenset[str]
    ) -> tuple[list[ScoredChunk], list[ScoredFile]]:
        pieces = piece_matrix(self._signals, candidates.pieces, without)
        files = file_matrix(self._signals, candidates.files, without)
        chunks = [
            self._chunk(int(number), self._piece_reasons(int(number), parts))
            for number, parts in zip(
                candidates.pieces, _grouped(ranker.pieces, PIECE_NAMES, pieces), strict=True
            )
        ]
        scored = [
            self._file(int(number), self._file_reasons(int(number), parts))
            for number, parts in zip(
                candidates.files, _grouped(ranker.files, FILE_NAMES, files), strict=True
            )
        ]
        return chunks, scored

    def _piece_reasons(self, number: int, parts: dict[str, float]) -> list[Reason]:
        file = int(self._corpus.piece_file[number])
        notes = {"lexical": self._lexical(number, 0.0).note, "base": self._file_note(file)}
        evidence = [
            *_sorted_reasons(self._signals.evidence.files.get(file)),
            *_sorted_reasons(self._signals.evidence.pieces.get(number)),
        ]
        return _explained(parts, notes, evidence)

    def _file_reasons(self, number: int, parts: dict[str, float]) -> list[Reason]:
        notes = {"base": self._file_note(number)}
        return _explained(parts, notes, _sorted_reasons(self._signals.evidence.files.get(number)))

    # ------------------------------------------------------------------------------------- writing

    def _lexical(self, number: int, value: float) -> Reason:
        count = len(self._corpus.piece_file)
        return Reason(
            "lexical", value, f"{self._piece_ranks[number]} of {count} by words in common"
        )

    def _file_note(self, file: int) -> str:
        return f"its file is {self._file_ranks[file]} of {len(self._corpus.files)}"

    def _chunk(self, number: int, reasons: Sequence[Reason]) -> ScoredChunk:
        source = self._corpus.files[int(self._corpus.piece_file[number])]
        chunk = self._corpus.pieces[number].chunk(source, self._lines.of(source.path))
        return scored_chunk(ScoredChunk(chunk, 0.0), reasons)

    def _file(self, number: int, reasons: Sequence[Reason]) -> ScoredFile:
        kept = tuple(reason for reason in reasons if reason.value)
        path = self._corpus.files[number].path
        return ScoredFile(path, sum(reason.value for reason in kept), kept)


def _grouped(
    ensemble: Ensemble, names: Sequence[str], rows: NDArray[np.float32]
) -> list[dict[str, float]]:
    """For each row what every group of features adds, in the order of the features."""
    parts = ensemble.contributions(rows)
    groups = [GROUP_OF[name] for name in names] + ["base"]  # the bias
    distinct = list(dict.fromkeys(groups))
    member = np.array([[group == one for one in distinct] for group in groups], dtype=np.float64)
    return [dict(zip(distinct, row, strict=True)) for row in (parts @ member).tolist()]


def _explained(
    parts: dict[str, float], notes: dict[str, str], evidence: Sequence[Reason]
) -> list[Reason]:
    """One reason a group, the strongest first; notes of evidence say what it was."""
    said: dict[str, list[str]] = {}
    for reason in evidence:
        said.setdefault(GROUP_OF.get(reason.feature, reason.feature), []).append(reason.note)
    reasons = [
        Reason(group, value, notes.get(group) or "; ".join(dict.fromkeys(said.get(group, ()))))
        for group, value in parts.items()
    ]
    return sorted(reasons, key=lambda reason: (-reason.value, reason.feature))


def scored_chunk(chunk: ScoredChunk, reasons: Sequence[Reason]) -> ScoredChunk:
    """The chunk with these reasons, its score their sum."""
    kept = tuple(reason for reason in reasons if reason.value)
    return ScoredChunk(chunk.chunk, sum(reason.value for reason in kept), kept)


class _Lines:
    """Lines of files, each file read and split once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[str, list[str]] = {}

    def of(self, path: str) -> list[str]:
        if path not in self._known:
            self._known[path] = split_lines(self._snapshot.text(path))
        return self._known[path]


def _sorted_reasons(features: dict[str, Reason] | None) -> list[Reason]:
    return sorted((features or {}).values(), key=lambda reason: (-reason.value, reason.feature))
