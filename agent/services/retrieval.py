"""The retriever, its index and the commit history."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.protocols import Embedder, Reporter, Retriever, Snapshot
from agent.services.embedding import make_embedder
from agent.services.model import Client, Tapes
from agent.settings import Settings

if TYPE_CHECKING:
    from agent.retrieval.index import Index, IndexSummary
    from agent.retrieval.options import RetrievalOptions
    from agent.retrieval.store import Records


@asynccontextmanager
async def open_retriever(
    settings: Settings, reporter: Reporter, *, workers: int | None = None
) -> AsyncIterator[Retriever]:
    """Retrieval alone, for the commands that make no model call.

    `workers`: processes that cut files on a cold cache; None for one a core.
    """
    async with AsyncExitStack() as stack:
        embedder = await make_embedder(
            stack, settings, Client(stack), reporter, lambda: math.inf, Tapes(stack)
        )
        yield make_retriever(settings, embedder, reporter, workers)


def make_retriever(
    settings: Settings, embedder: Embedder | None, reporter: Reporter, workers: int | None = None
) -> Retriever:
    """The retriever of the settings, over the index on disk."""
    from agent.retrieval.ranking import HybridRetriever

    options = retrieval_options(settings)
    sources = None
    if settings.corpora:
        from agent.services.evidence import evidence_sources

        index = make_index(settings, reporter)
        sources = evidence_sources(settings, options, index, reporter)
    return HybridRetriever(
        options,
        embedder=embedder,
        index_path=index_path(settings),
        reporter=reporter,
        sources=sources,
        workers=workers,
        shared=shared_records(settings, reporter),
    )


def retrieval_options(settings: Settings) -> RetrievalOptions:
    """The preset, with what was set beside it. Raises ConfigurationError for unknown names."""
    from agent.retrieval.presets import preset

    options = preset(settings.preset)
    options = replace(options, without=options.without.union(settings.without))
    if settings.prefilter is not None:
        options = replace(options, prefilter=settings.prefilter)
    if settings.filename_bonus is not None:
        options = replace(options, filename_bonus=settings.filename_bonus)
    return options


def index_path(settings: Settings) -> Path:
    """Where chunks are kept between runs."""
    return settings.cache_dir / "index.sqlite"


def shared_records(settings: Settings, reporter: Reporter) -> Callable[[], Records | None] | None:
    """What opens the index records that a team shares, where its store is a server with room.

    One that cannot be reached is said once and not asked again.
    """
    url = settings.store or ""
    if not url.startswith(("postgresql:", "postgres:")):
        return None
    gone = False

    def opened() -> Records | None:
        nonlocal gone
        from agent.stores.opening import open_records

        records = None if gone else open_records(url, reporter)
        gone = records is None
        return records

    return opened


def fill_index(
    settings: Settings, snapshot: Snapshot, reporter: Reporter, *, workers: int | None = None
) -> IndexSummary:
    """Cut and cache what is not cached yet, as the retriever will look for it.

    `workers` as for `open_retriever`.
    """
    return make_index(settings, reporter, workers).refresh(snapshot)


def make_index(settings: Settings, reporter: Reporter, workers: int | None = None) -> Index:
    """The code index of the settings, as the retriever reads it."""
    from agent.retrieval.index import Index
    from agent.retrieval.shipped import load_shipped

    return Index(
        reporter,
        index_path(settings),
        workers,
        encoder=load_shipped(retrieval_options(settings)).encoder,
        shared=shared_records(settings, reporter),
    )


def missing_models(settings: Settings) -> tuple[str, ...]:
    """What the settings ask for and the installation lacks, a line each."""
    from agent.retrieval.shipped import load_shipped

    return load_shipped(retrieval_options(settings)).notes


def fill_history(settings: Settings, snapshot: Snapshot, reporter: Reporter) -> int:
    """Read and cache the commit history that the retriever will ask; how many commits it has.

    0 where the settings leave it out, and for a snapshot that is in no repository on disk.
    """
    from agent.retrieval.history_store import CommitHistory, history_path

    if not retrieval_options(settings).uses_history:
        return 0
    history = CommitHistory(history_path(index_path(settings)), reporter)
    return len(history.load(snapshot).commits)
