"""Searches all corpora of a project at once.

    query -> a name that exists is looked up; other results follow
          -> each corpus by words (BM25) and by vectors, fused (weighted RRF);
             code by `agent.retrieval.ranking`, in its order
          -> one order of all, near-duplicates merged, the threshold applied

If a corpus fails, only its own results are missing, and a note gives the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import BudgetExceeded, ConfigurationError, ProviderError, StoreError
from agent.retrieval.history import HunkHistory, history_path
from agent.retrieval.index import WORD, Index, split_lines, without_suffix
from agent.run.problem import problem_from_text
from agent.search.documents import DocumentSource
from agent.search.fusion import (
    CORPUS_WEIGHTS,
    ProjectWords,
    WordIndex,
    build_word_index,
    merged,
    ordered,
    rank_corpus,
    weights_of,
)
from agent.search.history import HunkSource, Memory, MemorySource
from agent.search.intents import IntentFile, IntentSource
from agent.search.passages import (
    CorpusSource,
    CorpusUnavailable,
    Label,
    Passage,
    PoolHit,
    PoolResults,
    Query,
    passage_about,
    read_query,
)
from agent.search.precomputed import VectorSource
from agent.search.project import SearchPaths, project_name
from agent.search.symbols import load_outline
from agent.search.vectors import CorpusReport, PassageVectors, StaticEmbedder
from agent.shared.secrets import is_secret_path, mask_secrets
from agent.shared.workers import in_thread
from agent.types import Chunk, Reason
from agent.types.events import Notice, StageProgress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.retrieval.embedding import StaticEncoder
    from agent.retrieval.index import Corpus
    from agent.search.expansion import KeywordWriter
    from agent.search.plan_search import Nearest
    from agent.search.stores import VectorStore
    from agent.types import Problem, Ranking, ScoredChunk
    from agent.types.protocols import Embedder, Reporter, Retriever, Snapshot

_PREFILTER = 100
"""Passages, best by words, that are embedded if the corpus was not indexed and embedding costs
something. `agent.retrieval` embeds as many pieces of the code.
"""

_NEAREST = 30  # symbols that an intent of a plan is compared with
_MAX_EXACT = 12  # if more symbols share a name, the name is searched as an ordinary word
_LEAST_LETTERS = 3  # of a name without dots


@dataclass(slots=True, eq=False)
class _Pending:
    """One query and its results so far. `vector` is float32 (d,)."""

    problem: Problem
    labels: tuple[Label, ...]
    top_k: int
    query: Query
    vector: NDArray[np.float32] | None = None
    keywords: tuple[str, ...] = ()
    hits: list[PoolHit] = field(default_factory=list)
    searched: dict[Label, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Pool:
    """Searches one state of a project: words without `vectors`, no code without `retriever`."""

    snapshot: Snapshot
    sources: Sequence[CorpusSource]
    index: Index
    reporter: Reporter
    vectors: PassageVectors | None = None
    retriever: Retriever | None = None
    keywords: KeywordWriter | None = None

    @property
    def corpora(self) -> tuple[Label, ...]:
        """Return the corpora that can be searched, in the order of `Label`."""
        labels = {source.label for source in self.sources}
        if self.retriever is not None:
            labels.add(Label.CODE)
        return tuple(label for label in Label if label in labels)

    async def search(
        self, query: str | Problem, *, top_k: int = 20, at_least: float | None = None
    ) -> PoolResults:
        """Return the best `top_k` results, with `at_least` those whose cosine is known to be so.

        Raises ProblemError for an empty query.
        """
        problem = problem_from_text(query, "<query>") if isinstance(query, str) else query
        # an embedding server may receive the query
        pending = _Pending(
            problem, self.corpora, top_k, read_query(mask_secrets(problem.text).text)
        )
        exact = await self._look_up(pending)
        if len(exact) < top_k and WORD.search(pending.query.text):
            await self._search(pending)
        hits = pending.hits
        if at_least is not None:
            hits = [hit for hit in hits if hit.score_name == "cosine" and hit.value >= at_least]
        rest = await asyncio.to_thread(merged, _after_exact(exact, hits), CORPUS_WEIGHTS)
        best = (*ordered(exact), *rest)[:top_k]
        return PoolResults(best, pending.searched, tuple(dict.fromkeys(pending.notes)))

    async def fill(self) -> tuple[CorpusReport, ...]:
        """Store the vectors of all corpora but code, which has its own index. Raises StoreError."""
        return tuple([await self._fill(label) for label in self.corpora if label is not Label.CODE])

    async def _fill(self, label: Label) -> CorpusReport:
        try:
            passages = (await self._word_index(label)).passages
        except CorpusUnavailable as error:
            return CorpusReport(label, 0, note=str(error))
        count, vectors = len(passages), self._vectors_of(label)
        if not count:
            return CorpusReport(label, 0, note="nothing of it was found in this project")
        if vectors is None:
            return CorpusReport(label, count, note="no vectors: words alone")
        if isinstance(vectors, VectorSource):  # another program embedded them
            return CorpusReport(label, count, known=count)
        try:
            return await vectors.fill(label, passages, self._progress)
        except ProviderError as error:
            return CorpusReport(label, count, note=f"nothing was embedded: {error}")

    async def nearest(self, label: Label) -> Nearest | None:
        """Return what finds passages of a corpus by vectors, for calls from another thread.

        Vectors that cost nothing are stored first. None if the store has none of the corpus.
        """
        vectors = self.vectors
        if vectors is None:
            return None
        passages = (await self._word_index(label)).passages
        if vectors.is_free:
            await vectors.fill(label, passages, self._progress)
        if not await asyncio.to_thread(vectors.count, label):
            return None
        loop = asyncio.get_running_loop()

        async def find(texts: Sequence[str]) -> list[list[tuple[Passage, float]]]:
            queries = [read_query(mask_secrets(text).text).formatted for text in texts]
            try:
                rows = await vectors.embedder.embed(queries, kind="query")
            except ProviderError as error:
                self.reporter(
                    Notice(f"[{label.value}] searched by words alone: {error}", "warning")
                )
                return [[] for _ in texts]
            found = [await vectors.search(label, passages, row, _NEAREST) for row in rows]
            return [[(passages[number], score) for number, score in near] for near in found]

        return lambda texts: asyncio.run_coroutine_threadsafe(find(texts), loop).result()

    async def _look_up(self, pending: _Pending) -> tuple[PoolHit, ...]:
        """Return the symbols that the query names; decide whether a single word is a name."""
        exact: tuple[PoolHit, ...] = ()
        if pending.query.name and Label.CODE in pending.labels:
            corpus = await in_thread(partial(load_outline, self.snapshot, self.index))
            exact = await asyncio.to_thread(find_exact, pending.query, corpus, self.snapshot)
            pending.searched[Label.CODE] = len(corpus.piece_file)
        if pending.query.kind == "word":
            pending.query = pending.query.as_name(defined=bool(exact))
        return exact

    async def _search(self, pending: _Pending) -> None:
        if self.keywords is not None:
            try:
                pending.keywords = await self.keywords.keywords(pending.query.text)
            except (ProviderError, BudgetExceeded, OSError) as error:
                pending.notes.append(f"searched without a model's keywords: {error}")
        if self.vectors is not None:
            try:
                pending.vector = await self.vectors.query(pending.query.formatted)
            except ProviderError as error:
                pending.notes.append(f"searched by words alone: {error}")
        for label in pending.labels:
            if label is Label.CODE:
                await self._search_code(pending)
                continue
            try:
                await self._search_corpus(label, pending)
            except CorpusUnavailable as error:
                pending.notes.append(f"[{label.value}] left out: {error}")

    async def _search_corpus(self, label: Label, pending: _Pending) -> None:
        word_index = await self._word_index(label)
        words = await asyncio.to_thread(weights_of, pending.query, pending.keywords, word_index)
        near = await self._by_vectors(label, word_index, words, pending)
        pending.searched[label] = len(word_index.passages)
        by_symbol = label is Label.INTENT  # other intents of a symbol give the same information
        pending.hits += await asyncio.to_thread(
            rank_corpus, word_index, words, near, 2 * pending.top_k, by_symbol=by_symbol
        )

    async def _by_vectors(
        self, label: Label, word_index: WordIndex, words: ProjectWords, pending: _Pending
    ) -> Sequence[tuple[int, float]]:
        """Return the results by vectors. If they fail, there are none, and a note says why."""
        vectors, query, passages = self._vectors_of(label), pending.vector, word_index.passages
        if vectors is None or query is None or not passages:
            return ()
        try:
            if isinstance(vectors, PassageVectors):
                filled = passages
                if not vectors.is_free:
                    best = words.best(word_index, _PREFILTER)
                    filled = tuple(passages[number] for number in best)
                await vectors.fill(label, filled, self._progress)
            near = await vectors.search(label, passages, query, pending.top_k)
        except (StoreError, ProviderError) as error:
            pending.notes.append(f"[{label.value}] searched by words alone: {error}")
            return ()
        return [(number, score) for number, score in near if score > 0.0]

    async def _search_code(self, pending: _Pending) -> None:
        assert self.retriever is not None
        problem = pending.problem
        if pending.keywords:
            added = " ".join(pending.keywords)
            problem = replace(problem, body=f"{problem.body}\n{added}".strip())
        ranking = await self.retriever.rank(problem, self.snapshot)
        pending.searched[Label.CODE] = ranking.total_chunks
        pending.notes.extend(ranking.notes)
        matches = matching_chunks(problem.text, ranking)
        name = score_name(matches)
        for rank, match in enumerate(matches[: 2 * pending.top_k], start=1):
            passage, value = _code_passage(match.chunk), match.score
            pending.hits.append(
                PoolHit(passage, 0.0, match.reasons, rank=rank, value=value, score_name=name)
            )

    def _source(self, label: Label) -> CorpusSource:
        return next(source for source in self.sources if source.label is label)

    def _vectors_of(self, label: Label) -> PassageVectors | VectorSource | None:
        """Return what compares vectors of a corpus: the store, or a folder that has its own."""
        source = self._source(label)
        return source if isinstance(source, VectorSource) else self.vectors

    async def _word_index(self, label: Label) -> WordIndex:
        """Read the passages of a corpus and count their words. Raises CorpusUnavailable."""
        source = self._source(label)
        return await in_thread(
            lambda cancel: build_word_index(source.passages(self.snapshot, cancel))
        )

    def _progress(self, done: int, total: int) -> None:
        self.reporter(StageProgress("vectors", done, total))


# -------------------------------------------------------------------------- results from the code


def matching_chunks(query: str, ranking: Ranking) -> tuple[ScoredChunk, ...]:
    """Return the chunks of a ranking, which has all, that match a word of the query."""
    if not WORD.search(query):
        return ()
    return tuple(hit for hit in ranking.chunks if hit.score != 0.0 or hit.reasons)


def score_name(hits: Sequence[ScoredChunk]) -> str:
    """Return what the scores of the code are: of the ranker, of words, a cosine, or a sum."""
    features = {reason.feature for hit in hits for reason in hit.reasons}
    if "cosine" in features and features <= {"cosine", "filename"}:
        return "cosine"
    first = "ranker" if "ranker" in features else "words"
    return f"{first}+cosine" if "cosine" in features else first


def named_first(text: str, hits: Sequence[ScoredChunk]) -> list[ScoredChunk]:
    """Return results, those whose name is the whole query first."""
    named = _named(read_query(text), [(hit.chunk.symbol, hit.chunk.path) for hit in hits])
    first = [hits[number] for number in named]
    return first + [hit for hit in hits if hit not in first]


def find_exact(query: Query, corpus: Corpus, snapshot: Snapshot) -> tuple[PoolHit, ...]:
    """Return the symbols with the queried name by path and line; () if there are too many."""
    places = [(symbol, corpus.path_of(n)) for n, symbol in enumerate(corpus.symbols)]
    reasons = (Reason("exact", 1.0, f"{query.name} is its name"),)
    hits = []
    for number in _named(query, places):
        file = corpus.files[int(corpus.piece_file[number])]
        chunk = corpus.pieces[number].chunk(file, split_lines(snapshot.text(file.path)))
        hits.append(PoolHit(_code_passage(chunk), 1.0, reasons))
    return tuple(hits)


def _after_exact(exact: Sequence[PoolHit], hits: Iterable[PoolHit]) -> Iterable[PoolHit]:
    """Yield the hits that were not looked up by name. Ranks of code start after those."""
    places, code = {hit.passage.place for hit in exact}, len(exact)
    for hit in hits:
        if hit.passage.corpus is not Label.CODE:
            yield hit
        elif hit.passage.place not in places:
            code += 1
            yield replace(hit, rank=code)


def _named(query: Query, places: Sequence[tuple[str, str]]) -> list[int]:
    """Return the numbers of the symbols and paths that the query names; [] if too many."""
    if len(query.name) < _LEAST_LETTERS:
        return []
    parts = tuple(query.name.split("."))
    numbers = [
        number
        for number, (symbol, path) in enumerate(places)
        if symbol.rpartition(".")[2] == parts[-1] and _means(parts, symbol, path)
    ]
    chosen = [n for n in numbers if places[n][0] == query.name] or numbers
    return chosen if len(chosen) <= _MAX_EXACT else []


def _means(parts: Sequence[str], symbol: str, path: str) -> bool:
    """Whether `pkg.mod.Class.method`, or a suffix of it, names this symbol of this file."""
    own = tuple(symbol.split("."))
    common = min(len(own), len(parts))
    if own[-common:] != tuple(parts[-common:]):
        return False
    module = tuple(parts[: len(parts) - common])
    folders = tuple(without_suffix(path).removesuffix("/__init__").split("/"))
    return not module or folders[-len(module) :] == module


def _code_passage(chunk: Chunk) -> Passage:
    code = "" if is_secret_path(chunk.path) else chunk.text
    kind = chunk.kind.value
    return passage_about(chunk, Label.CODE, chunk.symbol or kind, code, kind)


# ---------------------------------------------------------------------------------------- opening


def make_pool(
    snapshot: Snapshot,
    labels: Iterable[Label],
    paths: SearchPaths,
    reporter: Reporter,
    *,
    encoder: StaticEncoder | None,
    embedder: Embedder | None = None,
    store: VectorStore | None = None,
    retriever: Retriever | None = None,
    keywords: KeywordWriter | None = None,
    history_patterns: tuple[str, ...] = ("generated/",),
    precomputed: Path | None = None,
    tags: tuple[str, ...] = (),
) -> Pool:
    """Create a pool from these parts.

    Without `embedder` the static encoder is used; without both, or without `store`, only words.
    `precomputed` is the folder of the corpus of vectors, of which those with all `tags` count.
    """
    project = project_name(snapshot)
    index = Index(reporter, paths.index, encoder=encoder)

    def source_of(label: Label) -> CorpusSource:
        match label:
            case Label.DOCS:
                return DocumentSource(index)
            case Label.INTENT:
                return IntentSource(index, IntentFile(paths.intents(project)))
            case Label.MEMORY:
                return MemorySource(Memory(paths.memory(project)))
            case Label.HISTORY:
                path = history_path(paths.index)
                return HunkSource(HunkHistory(path, reporter, patterns=history_patterns))
        if precomputed is None:
            raise ConfigurationError(
                "the corpus vectors needs its folder: give --precomputed FOLDER"
            )
        return VectorSource(precomputed, reporter, tags, embedded=embedder is not None)

    chosen = embedder or (None if encoder is None else StaticEmbedder(encoder))
    stored = None if chosen is None or store is None else PassageVectors(store, chosen, project)
    return Pool(
        snapshot,
        [source_of(label) for label in dict.fromkeys(labels) if label is not Label.CODE],
        index,
        reporter,
        stored,
        retriever,
        keywords,
    )
