"""Searches all corpora of a project at once.

    query -> a name that exists is looked up; other results follow
          -> each corpus by words (BM25) and by vectors, fused (weighted RRF);
             code by `agent.retrieval.ranking`, in its order
          -> one order of all, near-duplicates merged, the threshold applied

If a corpus fails, only its own results are missing, and a note gives the reason.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from agent.errors import BudgetExceeded, ProviderError, StoreError
from agent.run.problem import problem_from_text
from agent.search.code_results import (
    code_passage,
    find_exact,
    has_words,
    matching_chunks,
    relevance_of,
)
from agent.search.corpora.precomputed import VectorSource
from agent.search.corpora.symbols import load_outline
from agent.search.merging import CorpusHit, after_exact, as_hits, merged, one_a_symbol, ordered
from agent.search.passages import CorpusSource, CorpusUnavailable, Label, PoolHit, PoolResults
from agent.search.ranking import CORPUS_WEIGHTS, ProjectWords, rank_corpus, weights_of
from agent.search.static_embedder import StaticEmbedder
from agent.search.text_format import Query, read_query
from agent.search.vectors import CorpusReport, PassageVectors, fill_corpus
from agent.search.word_index import WordIndex, WordIndexCache
from agent.shared.secrets import mask_secrets
from agent.shared.threads import in_thread
from agent.types.events import StageProgress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.retrieval.index import Corpus, Index
    from agent.search.keywords import KeywordWriter
    from agent.types import Problem
    from agent.types.protocols import Reporter, Retriever, Snapshot


@dataclass(slots=True, eq=False)
class PendingQuery:
    """One query and its results so far."""

    problem: Problem
    labels: tuple[Label, ...]
    top_k: int
    at_least: float
    query: Query = field(init=False)
    keywords: tuple[str, ...] = ()
    exact: tuple[PoolHit, ...] = ()
    hits: list[CorpusHit] = field(default_factory=list)
    searched: dict[Label, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # an embedding server may receive it
        self.query = read_query(mask_secrets(self.problem.text).text)

    @property
    def has_words(self) -> bool:
        """Whether the query has words to search for."""
        return has_words(self.query.text)


@dataclass(frozen=True, slots=True)
class QueryVectors:
    """The vectors `rows` of the `pending` queries, float32 (q, d)."""

    rows: NDArray[np.float32]
    pending: Sequence[PendingQuery]

    def row(self, pending: PendingQuery) -> NDArray[np.float32]:
        """Return the vector of one query, (d,)."""
        row: NDArray[np.float32] = self.rows[self.pending.index(pending)]
        return row


def as_problem(query: str | Problem) -> Problem:
    """Convert the text of a query to a problem. Raises ProblemError if it is empty."""
    return problem_from_text(query, "<query>") if isinstance(query, str) else query


Expansion = Literal["off", "project", "llm"]

STAGE = "vectors"

PREFILTER = 100
"""Number of passages, best by words, that are embedded if the corpus was not indexed and embedding
costs something.

`agent.retrieval` embeds as many pieces of the code.
"""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a pool.

    Without `vectors` it only searches words. Without `retriever` it does not search code.
    """

    snapshot: Snapshot
    sources: Sequence[CorpusSource]
    index: Index
    word_indexes: WordIndexCache
    reporter: Reporter
    vectors: PassageVectors | None = None
    retriever: Retriever | None = None
    keywords: KeywordWriter | None = None
    weights: Mapping[Label, float] = field(default_factory=lambda: CORPUS_WEIGHTS)


@dataclass(slots=True)
class Pool:
    """Searches one state of a project. Create it with `agent.search.open_pool` or from `Parts`."""

    parts: Parts
    _word_indexes: dict[Label, WordIndex] = field(init=False, default_factory=dict)
    # corpora whose vectors are all stored
    _whole: set[Label] = field(init=False, default_factory=set)
    _outline: Corpus | None = field(init=False, default=None)

    @property
    def corpora(self) -> tuple[Label, ...]:
        """Return the corpora that can be searched, in the order of `Label`."""
        there = {source.label for source in self.parts.sources}
        if self.parts.retriever is not None:
            there.add(Label.CODE)
        return tuple(label for label in Label if label in there)

    async def search(
        self,
        query: str | Problem,
        *,
        corpora: Iterable[Label | str] | None = None,
        top_k: int = 20,
        at_least: float = 0.0,
        expand: Expansion = "off",
    ) -> PoolResults:
        """Return the best `top_k` results of the corpora (None: all of the pool) for one query.

        `at_least` drops results with a lower `PoolHit.relevance`. Raises ValueError for an unknown
        corpus name, and RepositoryError if the code cannot be read.
        """
        found = await self.search_many(
            [query], corpora=corpora, top_k=top_k, at_least=at_least, expand=expand
        )
        return found[0]

    async def search_many(
        self,
        queries: Sequence[str | Problem],
        *,
        corpora: Iterable[Label | str] | None = None,
        top_k: int = 20,
        at_least: float = 0.0,
        expand: Expansion = "off",
    ) -> tuple[PoolResults, ...]:
        """Search for several queries; one call embeds all of them."""
        labels = self._labels(corpora)
        pending = [PendingQuery(as_problem(query), labels, top_k, at_least) for query in queries]
        for one in pending:
            await self._look_up(one)
        open_ones = [one for one in pending if len(one.exact) < one.top_k and one.has_words]
        if open_ones:
            await self._search(open_ones, labels, expand)
        return tuple([await self._findings(one) for one in pending])

    async def fill(self, corpora: Iterable[Label | str] | None = None) -> tuple[CorpusReport, ...]:
        """Store the vectors of whole corpora, except code, which has its own index.

        Raises StoreError. The vectors written before the error remain in the store.
        """
        reports = []
        for label in self._labels(corpora):
            if label is not Label.CODE:
                report = await fill_corpus(
                    label, self._word_index, self._vectors_of(label), self._progress
                )
                reports.append(report)
        return tuple(reports)

    # -------------------------------------------------------------------------------- one query

    async def _look_up(self, pending: PendingQuery) -> None:
        if pending.query.name and Label.CODE in pending.labels:
            corpus = await self._load_outline()
            snapshot = self.parts.snapshot
            pending.exact = await asyncio.to_thread(find_exact, pending.query, corpus, snapshot)
            pending.searched[Label.CODE] = len(corpus.piece_file)
        if pending.query.kind == "word":
            pending.query = pending.query.as_name(defined=bool(pending.exact))

    async def _search(
        self, pending: Sequence[PendingQuery], labels: Sequence[Label], expand: Expansion
    ) -> None:
        if expand == "llm":
            for one in pending:
                await self._add_keywords(one)
        word_indexes = await self._load_word_indexes(labels, pending)
        vectors = await self._embed(pending)
        for label, word_index in word_indexes.items():
            await self._search_corpus(label, word_index, pending, vectors, expand)
        if Label.CODE in labels:
            for one in pending:
                await self._search_code(one)
        for one in pending:
            await self._measure(one, vectors)

    async def _add_keywords(self, pending: PendingQuery) -> None:
        if self.parts.keywords is None:
            pending.notes.append("no model is configured: searched without its keywords")
            return
        try:
            pending.keywords = await self.parts.keywords.keywords(pending.query.text)
        except (ProviderError, BudgetExceeded, OSError) as error:
            pending.notes.append(f"searched without a model's keywords: {error}")

    async def _search_corpus(
        self,
        label: Label,
        word_index: WordIndex,
        pending: Sequence[PendingQuery],
        vectors: QueryVectors | None,
        expand: Expansion,
    ) -> None:
        limit = max(one.top_k for one in pending)
        words = [
            await asyncio.to_thread(
                weights_of, one.query, one.keywords, word_index, expand == "project"
            )
            for one in pending
        ]
        by_vectors = await self._by_vectors(label, word_index, words, pending, vectors, limit)
        for one, own, near in zip(pending, words, by_vectors, strict=True):
            one.searched[label] = len(word_index.passages)
            found = await asyncio.to_thread(rank_corpus, word_index, own, near)
            kept = one_a_symbol(found, word_index) if label is Label.INTENT else found
            most = self._most(label, 2 * one.top_k)
            one.hits.extend(as_hits(word_index, kept[:most], own))

    async def _by_vectors(
        self,
        label: Label,
        word_index: WordIndex,
        words: Sequence[ProjectWords],
        pending: Sequence[PendingQuery],
        vectors: QueryVectors | None,
        limit: int,
    ) -> Sequence[Sequence[tuple[int, float]]]:
        """Return the vector results of each query.

        If vectors fail, there are none, and a note says why.
        """
        store = self._vectors_of(label)
        if vectors is None or store is None or not word_index.passages:
            return [()] * len(pending)
        try:
            if isinstance(store, PassageVectors):
                await self._ensure(store, label, word_index, words)
            found = await store.search(label, word_index.passages, vectors.rows, limit)
            return [[(n, score) for n, score in near if score > 0.0] for near in found]
        except (StoreError, ProviderError) as error:
            _note_all(pending, f"[{label.value}] searched by words alone: {error}")
            return [()] * len(pending)

    async def _ensure(
        self,
        store: PassageVectors,
        label: Label,
        word_index: WordIndex,
        words: Sequence[ProjectWords],
    ) -> None:
        """Store the vectors of all passages if embedding is free, otherwise of the best by
        words.
        """
        if label in self._whole:
            return
        if isinstance(store.embedder, StaticEmbedder):
            await store.fill(label, word_index.passages, self._progress)
            self._whole.add(label)
            return
        best = {n: None for own in words for n in own.best(word_index, PREFILTER)}
        await store.fill(label, [word_index.passages[n] for n in best])

    async def _search_code(self, pending: PendingQuery) -> None:
        retriever = self.parts.retriever
        assert retriever is not None
        problem = pending.problem
        if pending.keywords:
            added = " ".join(pending.keywords)
            problem = replace(problem, body=f"{problem.body}\n{added}".strip())
        ranking = await retriever.rank(problem, self.parts.snapshot)
        pending.searched[Label.CODE] = ranking.total_chunks
        pending.notes.extend(ranking.notes)
        found = matching_chunks(problem.text, ranking)
        relevances = relevance_of(found)
        for rank, scored in enumerate(found[: 2 * pending.top_k], start=1):
            hit = CorpusHit(code_passage(scored.chunk), rank, scored.reasons)
            hit.relevance = relevances[rank - 1]
            pending.hits.append(hit)

    # ---------------------------------------------------------------------------------- vectors

    async def _embed(self, pending: Sequence[PendingQuery]) -> QueryVectors | None:
        """Embed all queries in one call; None if that fails."""
        if self.parts.vectors is None:
            return None
        try:
            rows = await self.parts.vectors.queries([one.query.formatted for one in pending])
        except ProviderError as error:
            _note_all(pending, f"searched by words alone: {error}")
            return None
        return QueryVectors(rows, pending)

    async def _measure(self, pending: PendingQuery, vectors: QueryVectors | None) -> None:
        """Set the similarity of every hit."""
        if vectors is None:
            return
        row = vectors.row(pending)
        for label in pending.labels:
            store = self._vectors_of(label)
            hits = [hit for hit in pending.hits if hit.passage.corpus is label]
            if not hits or store is None or not row.any():
                continue
            try:
                found = await store.similarities(label, [hit.passage for hit in hits], row)
            except (StoreError, ProviderError) as error:
                pending.notes.append(f"[{label.value}] similarities are not known: {error}")
                continue
            for hit, similarity in zip(hits, found, strict=True):
                hit.similarity = similarity

    async def _findings(self, pending: PendingQuery) -> PoolResults:
        notes = tuple(dict.fromkeys(pending.notes))
        kept = [hit for hit in pending.hits if hit.relevance >= pending.at_least]
        rest = await asyncio.to_thread(merged, after_exact(pending.exact, kept), self.parts.weights)
        hits = (*ordered(pending.exact), *rest)
        return PoolResults(hits[: pending.top_k], pending.searched, notes)

    # ----------------------------------------------------------------------------------- corpora

    def _labels(self, corpora: Iterable[Label | str] | None) -> tuple[Label, ...]:
        if corpora is None:
            return self.corpora
        wanted = [Label(name) for name in corpora]
        missing = [label.value for label in wanted if label not in self.corpora]
        if missing:
            raise ValueError(f"this pool was opened without the corpus {missing[0]!r}")
        return tuple(dict.fromkeys(wanted))

    def _source(self, label: Label) -> CorpusSource:
        return next(source for source in self.parts.sources if source.label is label)

    def _vectors_of(self, label: Label) -> PassageVectors | VectorSource | None:
        """Return what compares vectors of a corpus: the store, or a folder that has its own."""
        if label is Label.CODE:
            return self.parts.vectors
        source = self._source(label)
        return source if isinstance(source, VectorSource) else self.parts.vectors

    def _most(self, label: Label, otherwise: int) -> int:
        """Return the most results of a corpus: an agent may want fewer."""
        source = self._source(label)
        wanted = source.agent if isinstance(source, VectorSource) else None
        return otherwise if wanted is None else min(wanted.top_k, otherwise)

    async def _load_word_indexes(
        self, labels: Sequence[Label], pending: Sequence[PendingQuery]
    ) -> dict[Label, WordIndex]:
        word_indexes: dict[Label, WordIndex] = {}
        for label in labels:
            if label is Label.CODE:
                continue
            try:
                word_indexes[label] = await self._word_index(label)
            except CorpusUnavailable as error:
                _note_all(pending, f"[{label.value}] left out: {error}")
        return word_indexes

    async def _word_index(self, label: Label) -> WordIndex:
        """Read the passages of a corpus and count their words, once. Raises CorpusUnavailable."""
        if label not in self._word_indexes:
            source = self._source(label)

            def make(cancel: threading.Event) -> WordIndex:
                return self.parts.word_indexes.of(source.passages(self.parts.snapshot, cancel))

            self._word_indexes[label] = await in_thread(make)
        return self._word_indexes[label]

    def _progress(self, done: int, total: int) -> None:
        """Report how many vectors of a corpus are stored."""
        self.parts.reporter(StageProgress(STAGE, done, total))

    def forget_corpus(self, label: Label) -> None:
        """Read a corpus again at its next use, because its source has changed."""
        self._word_indexes.pop(label, None)
        self._whole.discard(label)

    async def _load_outline(self) -> Corpus:
        if self._outline is None:
            parts = self.parts
            self._outline = await in_thread(
                lambda cancel: load_outline(parts.snapshot, parts.index, cancel)
            )
        return self._outline


def _note_all(pending: Sequence[PendingQuery], note: str) -> None:
    for one in pending:
        one.notes.append(note)
