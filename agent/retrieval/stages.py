"""The first stage of ranking: what needs no model. Gives scored chunks and files, best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.candidates import PROSE_AND_DATA, all_files, candidate_files
from agent.retrieval.chunking import split_lines
from agent.retrieval.evidence import Evidence, EvidenceSource
from agent.retrieval.identifiers import Terms
from agent.retrieval.lexical import LexicalScores, make_query, score
from agent.types import Reason, ScoredChunk, ScoredFile

if TYPE_CHECKING:
    import threading

    from numpy.typing import NDArray

    from agent.protocols import Snapshot
    from agent.retrieval.corpus import Corpus
    from agent.retrieval.index import Index
    from agent.retrieval.mentions import Mentions
    from agent.retrieval.options import RetrievalOptions
    from agent.types import Problem


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
    options: RetrievalOptions,
    cancel: threading.Event,
) -> Ranked:
    """BM25 of chunks and files, evidence, and their sum. Raises `pool.Cancelled`."""
    code_only = options.candidates == "code"
    files = candidate_files(snapshot, problem, mentions) if code_only else all_files(snapshot)
    terms = Terms()
    query = make_query(problem, terms)
    corpus = index.load(snapshot, files, query.hashes, cancel)
    evidence = Evidence()
    for source in sources if options.evidence else ():
        evidence.merge(source(problem, mentions, snapshot, corpus))
    scores = _weighted(score(corpus, query, terms), corpus, options)
    return _Combiner(corpus, scores, evidence, options).ranked(snapshot)


def _weighted(scores: LexicalScores, corpus: Corpus, options: RetrievalOptions) -> LexicalScores:
    """Prose and data weighted down, then both normalised to a maximum of 1."""
    factors = np.array(
        [options.prose_weight if f.language in PROSE_AND_DATA else 1.0 for f in corpus.files]
    )
    pieces = scores.pieces * factors[corpus.piece_file] if len(corpus.files) else scores.pieces
    return LexicalScores(normalised(pieces), normalised(scores.files * factors))


def normalised(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divided by the maximum; unchanged when there is nothing above 0."""
    top = float(scores.max(initial=0.0))
    return scores / top if top > 0.0 else scores


class _Combiner:
    """Adds up what is known of each file, then of each piece.

    file  = best piece + whole file + evidence
    piece = piece + file_weight * file / best file + evidence
    """

    def __init__(
        self, corpus: Corpus, scores: LexicalScores, evidence: Evidence, options: RetrievalOptions
    ) -> None:
        self._corpus = corpus
        self._pieces = scores.pieces
        self._evidence = evidence
        self._options = options
        self._best_piece = np.zeros(len(corpus.files))
        np.maximum.at(self._best_piece, corpus.piece_file, scores.pieces)
        self._whole = scores.files if options.file_scores else np.zeros(len(corpus.files))
        self._files = (
            self._best_piece + self._whole + _evidence_sums(evidence.files, len(corpus.files))
        )
        self._file_ranks = _ranks(self._files)
        self._file_share = options.file_weight * normalised(self._files)

    def ranked(self, snapshot: Snapshot) -> Ranked:
        corpus, limit = self._corpus, self._options.max_results
        totals = self._pieces + _evidence_sums(self._evidence.pieces, len(corpus.pieces))
        if self._options.file_scores:
            totals = totals + self._file_share[corpus.piece_file]
        ranks = _ranks(self._pieces)
        best = _best(totals, limit)
        lines = _Lines(snapshot)
        chunks = [self._chunk(number, int(ranks[number]), lines) for number in best]
        files = [self._file(number) for number in _best(self._files, limit)]
        return Ranked(in_order(chunks), files_in_order(files), len(corpus.pieces))

    def _chunk(self, number: int, rank: int, lines: _Lines) -> ScoredChunk:
        file = int(self._corpus.piece_file[number])
        count = len(self._corpus.pieces)
        reasons = [
            Reason("lexical", float(self._pieces[number]), f"{rank} of {count} by words in common")
        ]
        if self._options.file_scores:
            note = f"its file is {self._file_ranks[file]} of {len(self._corpus.files)}"
            reasons.append(Reason("file", float(self._file_share[file]), note))
        reasons.extend(_sorted_reasons(self._evidence.pieces.get(number)))
        source = self._corpus.files[file]
        chunk = self._corpus.pieces[number].chunk(source, lines.of(source.path))
        return scored_chunk(ScoredChunk(chunk, 0.0), reasons)

    def _file(self, number: int) -> ScoredFile:
        reasons = (
            Reason("best-chunk", float(self._best_piece[number]), "its best chunk's words"),
            Reason("lexical", float(self._whole[number]), "words of the whole file"),
            *_sorted_reasons(self._evidence.files.get(number)),
        )
        kept = tuple(reason for reason in reasons if reason.value)
        path = self._corpus.files[number].path
        return ScoredFile(path, sum(reason.value for reason in kept), kept)


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


def _evidence_sums(reasons: dict[int, dict[str, Reason]], count: int) -> NDArray[np.float64]:
    sums = np.zeros(count)
    for number, features in reasons.items():
        sums[number] = sum(reason.value for reason in _sorted_reasons(features))
    return sums


def _sorted_reasons(features: dict[str, Reason] | None) -> list[Reason]:
    return sorted((features or {}).values(), key=lambda reason: (-reason.value, reason.feature))


def _ranks(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """1 for the highest; ties by position."""
    ranks = np.empty(scores.size, dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, scores.size + 1)
    return ranks


def _best(scores: NDArray[np.float64], limit: int) -> list[int]:
    """Numbers of the `limit` highest scores above 0; where none is, of any (better than none)."""
    order = np.argsort(-scores, kind="stable")
    above = order[scores[order] > 0.0]
    return [int(number) for number in (above if above.size else order)[:limit]]
