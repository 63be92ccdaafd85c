"""Making a pool: from parts that are given, or for who just wants to search a repository."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from agent.corpora.documents import DocumentSource
from agent.corpora.intents import IntentBook, IntentSource
from agent.corpora.memory import Memory, MemorySource
from agent.corpora.passages import CorpusSource, Label
from agent.corpora.pool import Parts, Pool
from agent.corpora.project import project_key, project_name
from agent.corpora.shelf import Shelves
from agent.corpora.static_embedder import StaticEmbedder
from agent.corpora.vectors import PassageVectors
from agent.retrieval.index import Index

if TYPE_CHECKING:
    from agent.corpora.keywords import KeywordWriter
    from agent.protocols import Embedder, Reporter, Retriever, Snapshot
    from agent.retrieval.static import StaticEncoder
    from agent.stores.base import VectorStore

STORE_FILE = "store.sqlite"
"""The embedded store, in the cache folder."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are kept: `cache` may be lost, `data` has cost money or is the user's own."""

    cache: Path
    data: Path

    @property
    def index(self) -> Path:
        """Of chunks."""
        return self.cache / "index.sqlite"

    @property
    def store(self) -> Path:
        """The embedded store."""
        return self.cache / STORE_FILE

    def intents(self, project: str) -> Path:
        """What models wrote of a project's symbols."""
        return self.data / "intents" / f"{project_key(project)}.jsonl"

    def memory(self, project: str) -> Path:
        """Patches that the user accepted."""
        return self.data / "memory" / f"{project_key(project)}.jsonl"

    def keywords(self) -> Path:
        """What models said of queries."""
        return self.data / "keywords.jsonl"


def make_sources(
    labels: Iterable[Label], project: str, places: Places, index: Index, reporter: Reporter
) -> tuple[CorpusSource, ...]:
    """The sources of these corpora; code has none."""
    made: list[CorpusSource] = []
    for label in dict.fromkeys(labels):
        if label is Label.DOCS:
            made.append(DocumentSource(index))
        elif label is Label.INTENT:
            made.append(IntentSource(index, IntentBook(places.intents(project))))
        elif label is Label.MEMORY:
            made.append(MemorySource(Memory(places.memory(project))))
        elif label is Label.HISTORY:
            made.append(_history(places, reporter))
    return tuple(made)


def make_pool(
    snapshot: Snapshot,
    labels: Iterable[Label],
    places: Places,
    reporter: Reporter,
    *,
    encoder: StaticEncoder | None,
    embedder: Embedder | None = None,
    store: VectorStore | None = None,
    retriever: Retriever | None = None,
    keywords: KeywordWriter | None = None,
) -> Pool:
    """A pool of these parts.

    `embedder` None: the static encoder; neither, or no `store`: words alone.
    """
    project = project_name(snapshot)
    index = Index(reporter, places.index, encoder=encoder)
    chosen = embedder or (None if encoder is None else StaticEmbedder(encoder))
    vectors = None
    if chosen is not None and store is not None:
        vectors = PassageVectors(store, chosen, project)
    return Pool(
        Parts(
            snapshot=snapshot,
            sources=make_sources(labels, project, places, index, reporter),
            index=index,
            shelves=Shelves(places.cache / "shelves.sqlite", reporter),
            reporter=reporter,
            vectors=vectors,
            retriever=retriever,
            keywords=keywords,
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
    reporter: Reporter = lambda _: None,
) -> AsyncIterator[Pool]:
    """A pool over a repository on disk. See `agent.corpora.open_pool`."""
    import platformdirs

    from agent.repository.snapshot import take_snapshot
    from agent.retrieval.presets import preset
    from agent.retrieval.ranking import HybridRetriever
    from agent.retrieval.shipped import load_shipped
    from agent.stores.opening import open_store

    labels = tuple(dict.fromkeys(Label(name) for name in corpora))
    places = Places(
        cache or Path(platformdirs.user_cache_dir("patchshot")),
        data or Path(platformdirs.user_data_dir("patchshot")),
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
        )


def _history(places: Places, reporter: Reporter) -> CorpusSource:
    from agent.corpora.history.source import HunkSource
    from agent.corpora.history.store import HunkHistory

    return HunkSource(HunkHistory(places.cache / "hunks.sqlite", reporter))
