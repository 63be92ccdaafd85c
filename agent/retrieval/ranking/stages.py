"""The first stage of ranking, which needs no embedding server: scored chunks and files.

It measures signals for everything, selects candidates by their plain sum, adds the neighbours of
the best pieces, and orders the candidates with the learned ranker. Without the ranker the plain sum
decides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from agent.retrieval.ranking.explain import Writer, scored_chunk
from agent.retrieval.ranking.history_evidence import (
    cochange_evidence,
    history_evidence,
    score_history,
)
from agent.retrieval.ranking.lexical import make_bags, make_query
from agent.retrieval.ranking.signals import (
    Signals,
    choose_candidates,
    measure,
    normalised,
    order_without_words,
    words_missed,
)
from agent.shared.threads import Cancelled
from agent.types import DEFINITIONS, ChunkKind, Reason, ScoredChunk, ScoredFile

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from agent.retrieval.history import CommitHistory, HistoryTable
    from agent.retrieval.index import Corpus, Index, PieceEncoder
    from agent.retrieval.ranking.lexical import LexicalQuery
    from agent.retrieval.ranking.mentions import Mentions
    from agent.retrieval.ranking.options import RetrievalOptions
    from agent.retrieval.ranking.ranker import Ranker
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
    writer = Writer(signals, snapshot)
    if ranker is None:
        chunks, files = writer.summed(candidates)
    else:
        chunks, files = writer.learned(candidates, ranker)
    return Ranked(
        in_order(chunks),
        files_in_order(files),
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
    import numpy as np

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
