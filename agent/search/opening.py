"""Creates pools, either from given parts or for programs that only search a repository."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from agent.errors import ConfigurationError
from agent.retrieval.index import Index
from agent.search.corpora.documents import DocumentSource
from agent.search.corpora.intents import IntentFile, IntentSource
from agent.search.corpora.memory import Memory, MemorySource
from agent.search.corpora.precomputed import VectorSource
from agent.search.passages import CorpusSource, Label
from agent.search.pool import Parts, Pool
from agent.search.project import project_key, project_name
from agent.search.ranking import CORPUS_WEIGHTS
from agent.search.static_embedder import StaticEmbedder
from agent.search.vectors import PassageVectors
from agent.search.word_index import WordIndexCache

if TYPE_CHECKING:
    from agent.retrieval.embedding import StaticEncoder
    from agent.retrieval.history import HunkFilter
    from agent.search.keywords import KeywordWriter
    from agent.search.precomputed import SemanticSettings
    from agent.search.stores import VectorStore
    from agent.types.protocols import Embedder, Reporter, Retriever, Snapshot

STORE_FILE = "store.sqlite"
"""File name of the embedded store in the cache folder."""


@dataclass(frozen=True, slots=True)
class SearchPaths:
    """Paths of files.

    Files in `cache` can be rebuilt; files in `data` cost money or belong to the user.
    """

    cache: Path
    data: Path

    @property
    def index(self) -> Path:
        """Return the path of the chunk index."""
        return self.cache / "index.sqlite"

    @property
    def store(self) -> Path:
        """Return the path of the embedded vector store."""
        return self.cache / STORE_FILE

    def intents(self, project: str) -> Path:
        """Return the path of the intents that models wrote for a project's symbols."""
        return self.data / "intents" / f"{project_key(project)}.jsonl"

    def memory(self, project: str) -> Path:
        """Return the path of the patches of a project that the user accepted."""
        return self.data / "memory" / f"{project_key(project)}.jsonl"

    def packed(self, folder: Path) -> Path:
        """Return the path of the packed vectors of a folder."""
        mark = sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return self.cache / "precomputed" / f"{mark}.packed"

    def keywords(self) -> Path:
        """Return the path of the keywords that models gave for queries."""
        return self.data / "keywords.jsonl"


def make_sources(
    labels: Iterable[Label],
    project: str,
    places: SearchPaths,
    index: Index,
    reporter: Reporter,
    hunks: HunkFilter | None = None,
    vectors: VectorSource | None = None,
) -> tuple[CorpusSource, ...]:
    """Return the sources of these corpora. The code has no source.

    Raises ConfigurationError if the corpus of vectors has no folder.
    """
    made: list[CorpusSource] = []
    for label in dict.fromkeys(labels):
        if label is Label.DOCS:
            made.append(DocumentSource(index))
        elif label is Label.INTENT:
            made.append(IntentSource(index, IntentFile(places.intents(project))))
        elif label is Label.MEMORY:
            made.append(MemorySource(Memory(places.memory(project))))
        elif label is Label.HISTORY:
            made.append(_history(places, reporter, hunks))
        elif label is Label.VECTORS:
            if vectors is None:
                raise ConfigurationError(
                    "the corpus vectors needs its folder: give --precomputed FOLDER"
                )
            made.append(vectors)
    return tuple(made)


def make_pool(
    snapshot: Snapshot,
    labels: Iterable[Label],
    places: SearchPaths,
    reporter: Reporter,
    *,
    encoder: StaticEncoder | None,
    embedder: Embedder | None = None,
    store: VectorStore | None = None,
    retriever: Retriever | None = None,
    keywords: KeywordWriter | None = None,
    hunks: HunkFilter | None = None,
    weights: Mapping[Label, float] | None = None,
    precomputed: Path | None = None,
    agent: SemanticSettings | None = None,
) -> Pool:
    """Create a pool from these parts.

    Without `embedder` the static encoder is used. Without both, or without `store`, the pool only
    searches words. `hunks` selects past changes; `weights` replace those of CORPUS_WEIGHTS.
    `precomputed` is the folder of the corpus of vectors, and `agent` limits its results.
    """
    project = project_name(snapshot)
    index = Index(reporter, places.index, encoder=encoder)
    chosen = embedder or (None if encoder is None else StaticEmbedder(encoder))
    vectors = None
    if chosen is not None and store is not None:
        vectors = PassageVectors(store, chosen, project)
    folder = None
    if precomputed is not None:
        folder = VectorSource(
            precomputed, places.packed(precomputed), reporter, agent, embedded=embedder is not None
        )
    return Pool(
        Parts(
            snapshot=snapshot,
            sources=make_sources(labels, project, places, index, reporter, hunks, folder),
            index=index,
            word_indexes=WordIndexCache(places.cache / "shelves.sqlite", reporter),
            reporter=reporter,
            vectors=vectors,
            retriever=retriever,
            keywords=keywords,
            weights={**CORPUS_WEIGHTS, **(weights or {})},
        )
    )


@asynccontextmanager
async def open_pool(
    repo: Path | str,
    *,
    corpora: Iterable[Label | str] = (Label.CODE, Label.DOCS, Label.INTENT),
    commit: str | None = None,
    store: str | None = None,
    embedder: Embedder | None = None,
    cache: Path | None = None,
    data: Path | None = None,
    precomputed: Path | str | None = None,
    agent: SemanticSettings | None = None,
    reporter: Reporter = lambda _: None,
) -> AsyncIterator[Pool]:
    """Open a pool over the repository at `repo`, for use in `async with`.

    `commit`: None means the work tree in its current state.
    `store`: a URL as for `agent index --store`; None means the file in the cache folder.
    `embedder`: None means the static vectors of the package, so no text leaves the machine.
    `cache`, `data`: folders; None means the user's own folders.
    `precomputed`: the folder of the corpus `vectors`, and `agent` whose settings limit its results.
    `embedder` must be the model that made its vectors; without one it is searched by words.

    Settings and the environment are not read. Entering the context raises RepositoryError,
    StoreError or ConfigurationError, and ValueError for an unknown corpus.
    """
    from agent.repository import take_snapshot
    from agent.retrieval.ranking import HybridRetriever, load_shipped, preset
    from agent.search.stores import open_store
    from agent.settings import data_folder, user_folder

    labels = tuple(dict.fromkeys(Label(name) for name in corpora))
    places = SearchPaths(
        cache or user_folder("cache"),
        data or data_folder(),
    )
    options = preset("default")
    retriever = None
    if Label.CODE in labels:
        retriever = HybridRetriever(
            options, embedder=embedder, index_path=places.index, reporter=reporter
        )
    url = store or f"sqlite://{quote(str(places.store.absolute()))}"
    snapshot = take_snapshot(Path(repo), commit=commit)
    with open_store(url, reporter) as opened:
        yield make_pool(
            snapshot,
            labels,
            places,
            reporter,
            encoder=load_shipped(options).encoder,
            embedder=embedder,
            store=opened,
            retriever=retriever,
            precomputed=None if precomputed is None else Path(precomputed),
            agent=agent,
        )


def _history(places: SearchPaths, reporter: Reporter, hunks: HunkFilter | None) -> CorpusSource:
    from agent.retrieval.history import HunkFilter, HunkHistory, history_path
    from agent.search.corpora.history import HunkSource

    path = history_path(places.index)
    return HunkSource(HunkHistory(path, reporter, chosen=hunks or HunkFilter()))
