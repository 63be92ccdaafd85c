"""The retriever: first stage, embedding of the best, fusion, total order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.errors import ProviderError
from agent.events import Notice
from agent.retrieval.boilerplate import without_boilerplate
from agent.retrieval.mentions import Mentions, read_mentions
from agent.retrieval.texts import FileNames, document_text, query_text
from agent.types import Ranking

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from agent.protocols import Embedder, Reporter, Snapshot
    from agent.retrieval.evidence import EvidenceSource
    from agent.retrieval.options import RetrievalOptions
    from agent.retrieval.stages import Ranked
    from agent.retrieval.store import Records
    from agent.types import Problem

_NO_WORDS = "no word of the problem occurs in the code"


class HybridRetriever:
    """The `Retriever`. `index_path` None: nothing is kept between runs.

    `sources` None: what the problem mentions. `workers` bounds the processes of a cold run.
    `models`: the folder of the static encoder and the ranker; what is missing there is done
    without, and said once. `shared`: as for `agent.retrieval.index.Index`.
    """

    def __init__(
        self,
        options: RetrievalOptions,
        *,
        embedder: Embedder | None,
        index_path: Path | None,
        reporter: Reporter,
        sources: Sequence[EvidenceSource] | None = None,
        workers: int | None = None,
        models: Path | None = None,
        shared: Callable[[], Records | None] | None = None,
    ) -> None:
        self._options = options
        self._embedder = embedder if options.embedding else None
        self._index_path = index_path
        self._report = reporter
        self._sources = sources
        self._workers = workers
        self._models = models
        self._shared = shared
        self._said: set[str] = set()

    async def rank(self, problem: Problem, snapshot: Snapshot) -> Ranking:
        """Rank the snapshot's chunks. Without a working embedder the first stage's order stands."""
        if self._options.boilerplate:
            problem = without_boilerplate(problem, snapshot)
        mentions = read_mentions(problem)
        first = await self._first_stage(problem, mentions, snapshot)
        if self._embedder is None or not first.chunks:
            return _ranking(first, (*first.notes, *_unmatched(first)))
        return await self._second_stage(problem, mentions, first, self._embedder)

    async def _first_stage(
        self, problem: Problem, mentions: Mentions, snapshot: Snapshot
    ) -> Ranked:
        """In a thread, which ends soon after this is cancelled: Ctrl-C waits for it."""
        cancel = threading.Event()
        try:
            return await asyncio.to_thread(self._rank_words, problem, mentions, snapshot, cancel)
        except asyncio.CancelledError:
            cancel.set()
            raise

    def _rank_words(
        self, problem: Problem, mentions: Mentions, snapshot: Snapshot, cancel: threading.Event
    ) -> Ranked:
        # numpy and tree-sitter cost a tenth of a second: not at the import of the command line.
        from agent.retrieval.evidence import mention_evidence
        from agent.retrieval.history_store import CommitHistory, history_path
        from agent.retrieval.index import Index
        from agent.retrieval.overlap import overlap_stage
        from agent.retrieval.shipped import load_shipped
        from agent.retrieval.stages import lexical_stage

        options = self._options
        if options.first_stage == "overlap":
            return overlap_stage(problem, snapshot, options.max_results, cancel)
        models = load_shipped(options, self._models)
        for note in models.notes:
            self._say(note)
        index = Index(
            self._report,
            self._index_path,
            self._workers,
            encoder=models.encoder,
            shared=self._shared,
        )
        history = CommitHistory(history_path(self._index_path), self._report, cancel=cancel)
        sources = (mention_evidence,) if self._sources is None else self._sources
        ranked = lexical_stage(
            problem, mentions, snapshot, index, sources, history, models.ranker, options, cancel
        )
        return replace(ranked, notes=models.notes)

    async def _second_stage(
        self, problem: Problem, mentions: Mentions, first: Ranked, embedder: Embedder
    ) -> Ranking:
        head = first.chunks[: self._options.prefilter]
        texts = [document_text(scored.chunk) for scored in head]
        try:
            query, documents = await embed_both(embedder, query_text(problem, mentions), texts)
        except ProviderError as error:
            return self._degraded(first, f"no embeddings, ranked by words alone: {error}")
        return await asyncio.to_thread(self._fuse, problem, first, query, documents)

    def _fuse(
        self,
        problem: Problem,
        first: Ranked,
        query: NDArray[np.float32],
        documents: NDArray[np.float32],
    ) -> Ranking:
        import numpy as np

        from agent.retrieval.fusion import cosines, fuse

        if query.ndim != 2 or query.shape[0] != 1 or query.shape[1] != documents.shape[1]:
            return self._degraded(first, "embeddings of different sizes, ranked by words alone")
        if not query.any():
            return self._degraded(first, "the problem was not embedded, ranked by words alone")
        values = cosines(query[0], documents)
        failed = int(np.isnan(values).sum())
        fused = fuse(first, values, FileNames(problem), self._options)
        notes = (*first.notes, *_unmatched(first, "embeddings, "))
        if not failed:
            return _ranking(fused, notes)
        note = f"{failed} of {values.size} chunks could not be embedded"
        self._say(note)
        return _ranking(fused, (*notes, note), "some chunks could not be embedded")

    def _degraded(self, first: Ranked, note: str) -> Ranking:
        self._say(note)
        return _ranking(first, (*first.notes, note, *_unmatched(first)), note)

    def _say(self, message: str) -> None:
        """Once: a batch of problems fails for the same reason each time."""
        if message not in self._said:
            self._said.add(message)
            self._report(Notice(message, "warning"))


async def embed_both(
    embedder: Embedder, query: str, texts: Sequence[str]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(1, d) and (n, d), asked for at the same time; once more where their sizes differ.

    Raises ProviderError.
    """
    first, second = await _at_once(embedder, query, texts)
    if first.shape[1] != second.shape[1]:  # one was a slip; the embedder knows by now which
        return await _at_once(embedder, query, texts)
    return first, second


async def _at_once(
    embedder: Embedder, query: str, texts: Sequence[str]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    tasks = (embedder.embed([query], kind="query"), embedder.embed(texts, kind="document"))
    first, second = await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(first, BaseException):
        raise first
    if isinstance(second, BaseException):
        raise second
    return first, second


def no_words(ranking: Ranking) -> tuple[str, ...]:
    """The note that no word of the problem occurs, where it is so.

    It is said by who asks with the user's own problem; a model that searches hits nothing too.
    """
    return tuple(note for note in ranking.notes if note.startswith(_NO_WORDS))


def _unmatched(first: Ranked, by: str = "") -> tuple[str, ...]:
    if not first.instead or not first.chunks:
        return ()
    return (f"{_NO_WORDS}: ordered by {by}{first.instead}",)


def _ranking(ranked: Ranked, notes: tuple[str, ...], degraded: str = "") -> Ranking:
    return Ranking(ranked.chunks, ranked.files, ranked.total, notes, degraded)
