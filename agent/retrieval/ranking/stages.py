"""The first stage of ranking, which needs no embedding server: scored chunks and files.

It measures signals for everything, selects candidates by their plain sum, adds the neighbours of
the best pieces, and orders the candidates with the learned ranker. Without the ranker the plain sum
decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import (
    PROSE_AND_DATA,
    WORD,
    Piece,
    Terms,
    TreeSitterChunker,
    all_files,
    is_target,
    split_lines,
)
from agent.retrieval.ranking.evidence import Evidence, EvidenceSource
from agent.retrieval.ranking.history_evidence import (
    cochange_evidence,
    history_evidence,
    score_history,
)
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
    order_without_words,
    piece_matrix,
    words_missed,
)
from agent.shared.threads import Cancelled
from agent.types import DEFINITIONS, ChunkKind, Reason, ScoredChunk, ScoredFile

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from agent.retrieval.history import CommitHistory, HistoryTable
    from agent.retrieval.index import Corpus, Index, PieceEncoder
    from agent.retrieval.ranking.lexical import LexicalQuery
    from agent.retrieval.ranking.mentions import Mentions
    from agent.retrieval.ranking.ranker import Ranker, RetrievalOptions
    from agent.types import Chunk, Problem, SourceFile
    from agent.types.protocols import Snapshot

_SEEDS = 30  # best pieces by the plain sum whose neighbours are added
_FILE_SEEDS = 10


@dataclass(frozen=True, slots=True)
class Ranked:
    """Chunks and files in the order `-score, path, start`, out of `total` chunks.

    `notes` say what was missing. `learned`: scores are the ranker's margins. `instead`: what orders
    the chunks if no word of the problem occurs, else "".
    """

    chunks: tuple[ScoredChunk, ...]
    files: tuple[ScoredFile, ...]
    total: int
    notes: tuple[str, ...] = ()
    learned: bool = False
    instead: str = ""


def in_order(chunks: Sequence[ScoredChunk]) -> tuple[ScoredChunk, ...]:
    """Sort by falling score, then path and position: a total order."""
    return tuple(sorted(chunks, key=lambda c: (-c.score, c.chunk.path, c.chunk.start, c.chunk.end)))


def files_in_order(files: Sequence[ScoredFile]) -> tuple[ScoredFile, ...]:
    """Sort by falling score, then path."""
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
    """Measure signals, select candidates and order them. Raises Cancelled."""
    signals = collect_signals(problem, mentions, snapshot, index, sources, history, cancel)
    candidates = choose_candidates(signals, options.max_results)
    writer = _Writer(signals, snapshot)
    return Ranked(
        in_order(writer.chunks(candidates.pieces, ranker)),
        files_in_order(writer.files(candidates.files, ranker)),
        len(signals.corpus.piece_file),
        learned=ranker is not None,
        instead=order_without_words(signals) if words_missed(signals) else "",
    )


def collect_signals(
    problem: Problem,
    mentions: Mentions,
    snapshot: Snapshot,
    index: Index,
    sources: Sequence[EvidenceSource],
    history: CommitHistory | None,
    cancel: threading.Event,
) -> Signals:
    """Measure everything that features are computed from. Raises Cancelled."""
    files = candidate_files(snapshot, problem, mentions)
    terms = Terms()
    query = make_query(problem, terms)
    corpus = index.load(snapshot, files, query.hashes, cancel)
    table = None if history is None else history.table(snapshot)
    source = RankingInput(snapshot, corpus, index.encoder, table, tuple(sources))
    return signals_over(problem, mentions, source, query, terms)


@dataclass(frozen=True, slots=True)
class RankingInput:
    """The data that queries run on. The corpus must hold the postings of their terms."""

    snapshot: Snapshot
    corpus: Corpus
    encoder: PieceEncoder | None
    history: HistoryTable | None
    evidence: tuple[EvidenceSource, ...]


def signals_over(
    problem: Problem,
    mentions: Mentions,
    source: RankingInput,
    query: LexicalQuery,
    terms: Terms,
    *,
    neighbours: bool = True,
) -> Signals:
    """Like `collect_signals`, for a loaded corpus that has the postings of the terms in `query`."""
    corpus, table = source.corpus, source.history
    evidence = Evidence()
    for find in source.evidence:
        evidence.merge(find(problem, mentions, source.snapshot, corpus))
    if table is not None:
        evidence.merge(history_evidence(table, score_history(table, query, corpus)))
    bags = make_bags(corpus, query, terms)
    static = _static_cosines(source.encoder, query, corpus)
    signals = measure(problem, mentions, corpus, bags, query, evidence, static)
    if neighbours:
        _add_neighbours(signals, table)
    return signals


def _static_cosines(
    encoder: PieceEncoder | None, query: LexicalQuery, corpus: Corpus
) -> NDArray[np.float64] | None:
    from agent.retrieval.embedding import StaticEncoder, static_cosines

    if not isinstance(encoder, StaticEncoder):
        return None
    vector = encoder.query(query)
    return np.concatenate([np.empty(0), *(static_cosines(vector, v) for v in corpus.vectors)])


def _add_neighbours(signals: Signals, table: HistoryTable | None) -> None:
    """Add evidence for the neighbours of the best pieces by the plain sum."""
    from agent.retrieval.ranking.graph import neighbours

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
    signals.evidence.merge(found)


# -------------------------------------------------------------------------------------- reasons

RANKER = "ranker"
"""The feature of the reason that says what the trees add to a piece's share of the plain sum."""

_SLACK = 1e-9  # rounding error allowed in a sum of floats


class _Writer:
    """Writes the scored chunks and files of one query's signals.

    The parts of the plain sum add up to the score. The learned ranker scales them and adds its own.
    """

    def __init__(self, signals: Signals, snapshot: Snapshot) -> None:
        self._signals = signals
        self._corpus = signals.corpus
        self._snapshot = snapshot
        self._lines: dict[str, list[str]] = {}
        self._file_shares = normalised(signals.files)

    def chunks(self, pieces: NDArray[np.int64], ranker: Ranker | None) -> list[ScoredChunk]:
        """Return the scored chunks of these pieces."""
        self._read(pieces.tolist())
        sums = [self._piece_sum(number) for number in pieces.tolist()]
        if ranker is not None:
            rows = piece_matrix(self._signals, pieces)
            # Pieces without a name were never answers in the training data: the trees are ignored.
            named = np.array([bool(self._corpus.symbols[n]) for n in pieces.tolist()], dtype=bool)
            corrections = np.where(named, ranker.pieces.corrections(rows), 0.0)
            sums = _learned(sums, ranker.pieces.starts(rows), corrections)
        return [self._chunk(number, s) for number, s in zip(pieces.tolist(), sums, strict=True)]

    def files(self, files: NDArray[np.int64], ranker: Ranker | None) -> list[ScoredFile]:
        """Return these files, scored."""
        sums = [self._file_sum(number) for number in files.tolist()]
        if ranker is not None:
            rows = file_matrix(self._signals, files)
            sums = _learned(sums, ranker.files.starts(rows), ranker.files.corrections(rows))
        paths = (self._corpus.files[number].path for number in files.tolist())
        return [scored_file(path, _ordered(s)) for path, s in zip(paths, sums, strict=True)]

    def _piece_sum(self, number: int) -> list[Reason]:
        """Return reasons that add up to the piece's plain sum."""
        columns, file = self._signals.piece_columns, int(self._corpus.piece_file[number])
        words = float(columns["bm25"][number])
        reasons = [
            Reason("lexical", words, "" if words > 0.0 else "no words in common"),
            Reason("file", float(self._file_shares[file]), self._file_note(file)),
        ]
        if "static" in columns:
            reasons.append(Reason("static", STATIC_WEIGHT * float(columns["static"][number])))
        reasons += _weighted(self._signals.evidence.pieces.get(number))
        return _completed(reasons, float(self._signals.pieces[number]))

    def _file_note(self, file: int) -> str:
        """Return the notes of the file's evidence, strongest first."""
        evidence = _ordered(_weighted(self._signals.evidence.files.get(file)))
        notes = dict.fromkeys(reason.note for reason in evidence if reason.note)
        return "; ".join(list(notes)[:_NOTES])

    def _file_sum(self, number: int) -> list[Reason]:
        """Return reasons that add up to the file's plain sum."""
        columns = self._signals.file_columns
        reasons = [
            Reason("best-chunk", float(columns["file-best"][number]), "its best chunk's words"),
            Reason("lexical", float(columns["file-bm25"][number]), "words of the whole file"),
        ]
        if "file-static" in columns:
            value = STATIC_WEIGHT * float(columns["file-static"][number])
            reasons.append(Reason("static", value, "its best chunk's static vector"))
        reasons += _weighted(self._signals.evidence.files.get(number))
        return _completed(reasons, float(self._signals.files[number]))

    def _read(self, pieces: Iterable[int]) -> None:
        """Read the lines of the pieces' files, splitting each only as far as its pieces reach."""
        ends: dict[str, int] = {}
        for number in pieces:
            path = self._corpus.path_of(number)
            ends[path] = max(ends.get(path, 0), self._corpus.pieces[number].end)
        texts = {path: self._snapshot.text(path) for path in ends}
        self._lines |= {path: texts[path].split("\n", end) for path, end in ends.items()}

    def _chunk(self, number: int, reasons: Sequence[Reason]) -> ScoredChunk:
        source = self._corpus.files[int(self._corpus.piece_file[number])]
        chunk = self._corpus.pieces[number].chunk(source, self._lines[source.path])
        return scored_chunk(ScoredChunk(chunk, 0.0), _ordered(reasons))


_NOTES = 2  # most notes on a file: it may have twenty importers


def _weighted(features: Mapping[str, Reason] | None) -> list[Reason]:
    """Return the evidence with its weights in the plain sum."""
    return [
        replace(reason, value=reason.value * EVIDENCE_WEIGHTS.get(reason.feature, 1.0))
        for reason in (features or {}).values()
        if reason.feature not in AROUND
    ]


def _completed(reasons: list[Reason], total: float) -> list[Reason]:
    """Add a reason for the rest of `total` that the reasons do not cover."""
    rest = total - sum(reason.value for reason in reasons)
    return [*reasons, Reason("other", rest)] if abs(rest) > _SLACK else reasons


def _learned(
    sums: Sequence[Sequence[Reason]],
    starts: NDArray[np.float64],
    corrections: NDArray[np.float64],
) -> list[list[Reason]]:
    """Scale the parts of each plain sum to its start, and add the correction by the trees."""
    learned = []
    for reasons, start, change in zip(sums, starts.tolist(), corrections.tolist(), strict=True):
        whole = sum(reason.value for reason in reasons)
        scale = start / whole if whole > 0.0 else 0.0
        scaled = [replace(reason, value=reason.value * scale) for reason in reasons]
        learned.append([*scaled, Reason(RANKER, change, "learned from past fixes")])
    return learned


def _ordered(reasons: Iterable[Reason]) -> list[Reason]:
    return sorted(reasons, key=lambda reason: (-reason.value, reason.feature))


def scored_chunk(chunk: ScoredChunk, reasons: Sequence[Reason]) -> ScoredChunk:
    """Return the chunk with these reasons and their sum as its score."""
    telling = tuple(reason for reason in reasons if reason.value)
    return ScoredChunk(chunk.chunk, sum(reason.value for reason in telling), telling)


def scored_file(path: str, reasons: Sequence[Reason]) -> ScoredFile:
    """Return the file with these reasons and their sum as its score."""
    telling = tuple(reason for reason in reasons if reason.value)
    return ScoredFile(path, sum(reason.value for reason in telling), telling)


# ----------------------------------------------------------------------------- original first stage


def overlap_stage(
    problem: Problem, snapshot: Snapshot, limit: int, cancel: threading.Event
) -> Ranked:
    """Return the `limit` chunks that share the most words with the problem. Reads every file.

    Raises Cancelled.
    """
    words = frozenset(_words(problem.text))
    chunker = TreeSitterChunker()
    scored: list[ScoredChunk] = []
    files: list[ScoredFile] = []
    for file in all_files(snapshot):
        if cancel.is_set():
            raise Cancelled
        if file.language in PROSE_AND_DATA:
            continue
        mine = [_scored(chunk, words) for chunk in _chunks(file, snapshot.text(file.path), chunker)]
        scored.extend(mine)
        best = max((chunk.score for chunk in mine), default=0.0)
        files.append(ScoredFile(file.path, best, (Reason("overlap", best, "words in common"),)))
    return Ranked(in_order(scored)[:limit], files_in_order(files)[:limit], len(scored))


def _words(text: str) -> Iterator[str]:
    return (word.lower() for word in WORD.findall(text))


def _scored(chunk: Chunk, words: frozenset[str]) -> ScoredChunk:
    shared = len(words.intersection(_words(chunk.text)))
    reason = Reason("overlap", float(shared), f"{shared} words in common")
    return scored_chunk(ScoredChunk(chunk, 0.0), [reason])


def _chunks(file: SourceFile, text: str, chunker: TreeSitterChunker) -> Iterator[Chunk]:
    lines = split_lines(text)
    if lines:
        yield Piece(1, len(lines), "", ChunkKind.MODULE).chunk(file, lines)
    yield from (chunk for chunk in chunker(file, text) if chunk.kind in DEFINITIONS)


# ---------------------------------------------------------------------------------- candidate files

_ABOUT_TESTS = frozenset({"test", "tests", "testsuite", "flaky", "pytest", "unittest", "fixture"})


def candidate_files(
    snapshot: Snapshot, problem: Problem, mentions: Mentions
) -> tuple[SourceFile, ...]:
    """Return files in path order without tests, vendored and generated code.

    Such a file stays if the problem is clearly about it: its path is in the title, or the title is
    about tests and its path is in the text. If no other file is left, all stay.
    """
    files = all_files(snapshot)
    named = _named_files(problem, mentions)
    kept = tuple(file for file in files if is_target(file.path) or _names(named, file.path))
    return kept or files


def _named_files(problem: Problem, mentions: Mentions) -> frozenset[str]:
    """Return the mentioned paths that stay even if they are tests, vendored or generated files."""
    about_tests = not _ABOUT_TESTS.isdisjoint(w.lower() for w in WORD.findall(problem.title))
    return frozenset(m.path for m in mentions.paths if about_tests or m.path in problem.title)


def _names(mentioned: Collection[str], path: str) -> bool:
    return any(path == mention or path.endswith("/" + mention) for mention in mentioned)
