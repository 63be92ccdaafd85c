"""The pool: one search over all corpora of a project.

    query -> a name that exists? looked up; the others follow it
          -> each corpus by words (BM25) and by vectors, fused (weighted RRF)
             code by `agent.retrieval`, whose order is kept
          -> one order of all, near-duplicates merged, the threshold applied

A corpus that fails costs its own results only; a note says so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from agent.corpora.asked import Asked, QueryVectors, as_problem
from agent.corpora.cancelling import in_thread
from agent.corpora.exact import code_passage, find_exact
from agent.corpora.filling import CorpusReport, fill_corpus
from agent.corpora.matching import matching
from agent.corpora.merging import Hit, after_exact, as_hits, merged, one_a_symbol, ordered
from agent.corpora.passages import CorpusSource, CorpusUnavailable, Findings, Label
from agent.corpora.ranking import ProjectWords, rank_corpus, weights_of
from agent.corpora.shelf import Shelf, Shelves
from agent.corpora.static_embedder import StaticEmbedder
from agent.corpora.symbols import load_outline
from agent.errors import BudgetExceeded, ProviderError, StoreError
from agent.events import StageProgress

if TYPE_CHECKING:
    from agent.corpora.keywords import KeywordWriter
    from agent.corpora.vectors import PassageVectors
    from agent.protocols import Reporter, Retriever, Snapshot
    from agent.retrieval.corpus import Corpus
    from agent.retrieval.index import Index
    from agent.types import Problem

Expansion = Literal["off", "project", "llm"]

STAGE = "vectors"

PREFILTER = 100
"""Passages by words that are embedded where nothing was indexed and embedding costs something:
what `agent.retrieval` embeds of the code."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a pool is made of. `vectors` None: words alone; `retriever` None: no code."""

    snapshot: Snapshot
    sources: Sequence[CorpusSource]
    index: Index
    shelves: Shelves
    reporter: Reporter
    vectors: PassageVectors | None = None
    retriever: Retriever | None = None
    keywords: KeywordWriter | None = None


@dataclass(slots=True)
class Pool:
    """Searches one state of a project. Made by `agent.corpora.open_pool`, or from `Parts`."""

    parts: Parts
    _shelves: dict[Label, Shelf] = field(init=False, default_factory=dict)
    _whole: set[Label] = field(init=False, default_factory=set)  # all of it is in the store
    _outline: Corpus | None = field(init=False, default=None)

    @property
    def corpora(self) -> tuple[Label, ...]:
        """Those that can be searched, in the order of `Label`."""
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
    ) -> Findings:
        """The best `top_k` of the corpora (None: all of the pool) for one query.

        `at_least` drops what is less similar than that (`Finding.similarity`). Raises ValueError
        for a name that no corpus has, and RepositoryError where code cannot be read.
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
    ) -> tuple[Findings, ...]:
        """The same for several queries; all are embedded in one call."""
        labels = self._labels(corpora)
        asked = [Asked(as_problem(query), labels, top_k, at_least) for query in queries]
        for one in asked:
            await self._look_up(one)
        open_ones = [one for one in asked if len(one.exact) < one.top_k and one.has_words]
        if open_ones:
            await self._search(open_ones, labels, expand)
        return tuple([await self._findings(one) for one in asked])

    async def fill(self, corpora: Iterable[Label | str] | None = None) -> tuple[CorpusReport, ...]:
        """Put the vectors of whole corpora into the store, code left out: it has its own index.

        Raises StoreError; what was written until then stays.
        """
        reports = []
        for label in self._labels(corpora):
            if label is not Label.CODE:
                report = await fill_corpus(label, self._shelf, self.parts.vectors, self._progress)
                reports.append(report)
        return tuple(reports)

    # -------------------------------------------------------------------------------- one query

    async def _look_up(self, asked: Asked) -> None:
        if asked.query.kind == "identifier" and Label.CODE in asked.labels:
            corpus = await self._load_outline()
            snapshot = self.parts.snapshot
            asked.exact = await asyncio.to_thread(find_exact, asked.query, corpus, snapshot)
            asked.searched[Label.CODE] = len(corpus.piece_file)

    async def _search(
        self, asked: Sequence[Asked], labels: Sequence[Label], expand: Expansion
    ) -> None:
        if expand == "llm":
            for one in asked:
                await self._add_keywords(one)
        shelves = await self._load_shelves(labels, asked)
        vectors = await self._embed(asked, list(shelves))
        for label, shelf in shelves.items():
            await self._search_corpus(label, shelf, asked, vectors, expand)
        if Label.CODE in labels:
            for one in asked:
                await self._search_code(one)
        for one in asked:
            await self._measure(one, vectors)

    async def _add_keywords(self, asked: Asked) -> None:
        if self.parts.keywords is None:
            asked.notes.append("no model is configured: searched without its keywords")
            return
        try:
            asked.keywords = await self.parts.keywords.keywords(asked.query.text)
        except (ProviderError, BudgetExceeded, OSError) as error:
            asked.notes.append(f"searched without a model's keywords: {error}")

    async def _search_corpus(
        self,
        label: Label,
        shelf: Shelf,
        asked: Sequence[Asked],
        vectors: QueryVectors | None,
        expand: Expansion,
    ) -> None:
        limit = max(one.top_k for one in asked)
        words = [
            await asyncio.to_thread(weights_of, one.query, one.keywords, shelf, expand == "project")
            for one in asked
        ]
        by_vectors = await self._by_vectors(label, shelf, words, asked, vectors, limit)
        for one, own, near in zip(asked, words, by_vectors, strict=True):
            one.searched[label] = len(shelf.passages)
            found = await asyncio.to_thread(rank_corpus, shelf, own, near)
            kept = one_a_symbol(found, shelf) if label is Label.INTENT else found
            one.hits.extend(as_hits(shelf, kept[: 2 * one.top_k], own))

    async def _by_vectors(
        self,
        label: Label,
        shelf: Shelf,
        words: Sequence[ProjectWords],
        asked: Sequence[Asked],
        vectors: QueryVectors | None,
        limit: int,
    ) -> Sequence[Sequence[tuple[int, float]]]:
        """For each query what vectors find; nothing, with a note, where they cannot be had."""
        store = self.parts.vectors
        if vectors is None or store is None or not shelf.passages:
            return [()] * len(asked)
        try:
            await self._ensure(label, shelf, words)
            rows = vectors.rows(label)
            found = await store.search(label, shelf.passages, rows, limit)
            return [[(n, score) for n, score in near if score > 0.0] for near in found]
        except (StoreError, ProviderError) as error:
            _note_all(asked, f"[{label.value}] searched by words alone: {error}")
            return [()] * len(asked)

    async def _ensure(self, label: Label, shelf: Shelf, words: Sequence[ProjectWords]) -> None:
        """Vectors of all where they cost nothing, else of the best by words."""
        store = self.parts.vectors
        assert store is not None
        if label in self._whole:
            return
        if isinstance(store.embedder, StaticEmbedder):
            await store.fill(label, shelf.passages, self._progress)
            self._whole.add(label)
            return
        best = {n: None for own in words for n in own.best(shelf, PREFILTER)}
        await store.fill(label, [shelf.passages[n] for n in best])

    async def _search_code(self, asked: Asked) -> None:
        retriever = self.parts.retriever
        assert retriever is not None
        ranking = await retriever.rank(asked.problem, self.parts.snapshot)
        asked.searched[Label.CODE] = ranking.total_chunks
        asked.notes.extend(ranking.notes)
        found = matching(asked.problem.text, ranking)
        for rank, scored in enumerate(found[: 2 * asked.top_k], start=1):
            passage = code_passage(scored.chunk)
            asked.hits.append(Hit(passage, rank, scored.reasons))

    # ---------------------------------------------------------------------------------- vectors

    async def _embed(self, asked: Sequence[Asked], labels: Sequence[Label]) -> QueryVectors | None:
        """All queries in all forms, in one call; None where that fails."""
        if self.parts.vectors is None:
            return None
        forms = [
            {label: one.query.formatted(label) for label in (*labels, Label.CODE)} for one in asked
        ]
        texts = list(dict.fromkeys(text for form in forms for text in form.values()))
        try:
            rows = await self.parts.vectors.queries(texts)
        except ProviderError as error:
            _note_all(asked, f"searched by words alone: {error}")
            return None
        return QueryVectors(forms, dict(zip(texts, range(len(texts)), strict=True)), rows, asked)

    async def _measure(self, asked: Asked, vectors: QueryVectors | None) -> None:
        """Give every hit its similarity."""
        store = self.parts.vectors
        if vectors is None or store is None:
            return
        for label in asked.labels:
            hits = [hit for hit in asked.hits if hit.passage.corpus is label]
            row = vectors.row(asked, label)
            if not hits or not row.any():
                continue
            try:
                found = await store.similarities(label, [hit.passage for hit in hits], row)
            except (StoreError, ProviderError) as error:
                asked.notes.append(f"[{label.value}] similarities are not known: {error}")
                continue
            for hit, similarity in zip(hits, found, strict=True):
                hit.similarity = similarity

    async def _findings(self, asked: Asked) -> Findings:
        notes = tuple(dict.fromkeys(asked.notes))
        kept = [hit for hit in asked.hits if hit.similarity >= asked.at_least]
        rest = await asyncio.to_thread(merged, after_exact(asked.exact, kept))
        hits = (*ordered(asked.exact), *rest)
        return Findings(hits[: asked.top_k], asked.searched, notes)

    # ----------------------------------------------------------------------------------- corpora

    def _labels(self, corpora: Iterable[Label | str] | None) -> tuple[Label, ...]:
        if corpora is None:
            return self.corpora
        wanted = [Label(name) for name in corpora]
        missing = [label.value for label in wanted if label not in self.corpora]
        if missing:
            raise ValueError(f"this pool was opened without the corpus {missing[0]!r}")
        return tuple(dict.fromkeys(wanted))

    async def _load_shelves(
        self, labels: Sequence[Label], asked: Sequence[Asked]
    ) -> dict[Label, Shelf]:
        shelves: dict[Label, Shelf] = {}
        for label in labels:
            if label is Label.CODE:
                continue
            try:
                shelves[label] = await self._shelf(label)
            except CorpusUnavailable as error:
                _note_all(asked, f"[{label.value}] left out: {error}")
        return shelves

    async def _shelf(self, label: Label) -> Shelf:
        """The passages of a corpus and their words, read once. Raises CorpusUnavailable."""
        if label not in self._shelves:
            source = next(s for s in self.parts.sources if s.label is label)

            def make(cancel: threading.Event) -> Shelf:
                return self.parts.shelves.of(source.passages(self.parts.snapshot, cancel))

            self._shelves[label] = await in_thread(make)
        return self._shelves[label]

    def _progress(self, done: int, total: int) -> None:
        """Say how far the vectors of a corpus are."""
        self.parts.reporter(StageProgress(STAGE, done, total))

    def forget_shelf(self, label: Label) -> None:
        """Read a corpus anew at its next use: its source has changed."""
        self._shelves.pop(label, None)
        self._whole.discard(label)

    async def _load_outline(self) -> Corpus:
        if self._outline is None:
            parts = self.parts
            self._outline = await in_thread(
                lambda cancel: load_outline(parts.snapshot, parts.index, cancel)
            )
        return self._outline


def _note_all(asked: Sequence[Asked], note: str) -> None:
    for one in asked:
        one.notes.append(note)
