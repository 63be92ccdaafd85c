"""The retriever, its index, the commit history, and the embedder that the settings choose."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError
from agent.settings import CONTEXT_TOKENS, Settings, environment
from agent.types.protocols import Embedder, Reporter, Retriever, Snapshot
from agent.wiring.model import Connections, endpoint, in_words, make_clock

if TYPE_CHECKING:
    from agent.llm import Endpoint
    from agent.retrieval.context import PackingOptions
    from agent.retrieval.embedding import BatchEmbedder
    from agent.retrieval.index import Index, IndexSummary
    from agent.retrieval.ranking import RetrievalOptions


def packing_options(settings: Settings) -> PackingOptions:
    """Return the options for filling the context."""
    from agent.retrieval.context import PackingOptions

    fixed = settings.context_tokens
    options = PackingOptions(
        budget=CONTEXT_TOKENS if fixed == "auto" else fixed,
        automatic=fixed == "auto",
        reserve=settings.context_reserve,
        max_chunks=settings.max_chunks,
        allow_empty=settings.allow_empty_context,
    )
    if retrieval_options(settings).original:
        chunks = settings.max_chunks or 30
        return replace(options, automatic=False, max_chunks=chunks, original=True)
    return options


@asynccontextmanager
async def open_retriever(settings: Settings, reporter: Reporter) -> AsyncIterator[Retriever]:
    """Open a retriever for commands that make no model call."""
    async with AsyncExitStack() as stack:
        embedder = await make_embedder(settings, Connections(stack, reporter))
        yield make_retriever(settings, embedder, reporter)


def make_retriever(settings: Settings, embedder: Embedder | None, reporter: Reporter) -> Retriever:
    """Make the retriever of the settings over the index on disk."""
    from agent.retrieval.ranking import HybridRetriever

    return HybridRetriever(
        retrieval_options(settings),
        embedder=embedder,
        index_path=index_path(settings),
        reporter=reporter,
    )


def retrieval_options(settings: Settings) -> RetrievalOptions:
    """Return the preset with the options that were set separately."""
    from agent.retrieval.ranking import preset

    options = preset(settings.preset)
    if settings.prefilter is not None:
        options = replace(options, prefilter=settings.prefilter)
    if settings.filename_bonus is not None:
        options = replace(options, filename_bonus=settings.filename_bonus)
    return options


def index_path(settings: Settings) -> Path:
    """Return the path of the cached chunks."""
    return settings.cache_dir / "index.sqlite"


def fill_index(settings: Settings, snapshot: Snapshot, reporter: Reporter) -> IndexSummary:
    """Chunk and cache the files that are not cached yet."""
    return make_index(settings, reporter).refresh(snapshot)


def make_index(settings: Settings, reporter: Reporter) -> Index:
    """Make the code index of the settings, as the retriever reads it."""
    from agent.retrieval.index import Index
    from agent.retrieval.ranking import load_shipped

    return Index(
        reporter,
        index_path(settings),
        encoder=load_shipped(retrieval_options(settings)).encoder,
    )


def missing_models(settings: Settings) -> tuple[str, ...]:
    """Return one line for each model that the settings need and that is not installed."""
    from agent.retrieval.ranking import load_shipped

    return load_shipped(retrieval_options(settings)).notes


def fill_history(settings: Settings, snapshot: Snapshot, reporter: Reporter) -> int:
    """Cache the commit history that the retriever uses; return the number of commits."""
    from agent.retrieval.history import CommitHistory, history_path

    if retrieval_options(settings).original:
        return 0
    history = CommitHistory(history_path(index_path(settings)), reporter)
    return len(history.table(snapshot).commits)


# ------------------------------------------------------------------------------------- embeddings

# Embedding calls at once, where EMBED_CONCURRENCY is not set: the default of the original system.
DEFAULT_CONCURRENCY = 8

_SHARE_OF_TIME = 0.1  # share of the remaining run time that listing the models may take


async def make_embedder(settings: Settings, connections: Connections) -> Embedder | None:
    """Return the embedder that the settings choose; None means lexical retrieval."""
    model = await _batch_embedder(settings, connections)
    if model is None:
        compares = settings.embed != "off" and retrieval_options(settings).original
        return _static_embedder() if compares else None
    from agent.retrieval.embedding import EmbeddingOptions, ParallelEmbedder, open_vector_cache

    options = EmbeddingOptions(concurrency=_concurrency())
    cache = open_vector_cache(settings.cache_dir / "vectors.sqlite", connections.reporter)
    connections.stack.callback(cache.close)
    return ParallelEmbedder(model, connections.reporter, options, cache, connections.time_left)


def _static_embedder() -> Embedder | None:
    """Return the package's encoder; None in the miner bundle, which has no `agent.search`."""
    from agent.retrieval.ranking import load_shipped, preset

    encoder = load_shipped(preset("default")).encoder
    if encoder is None or find_spec("agent.search") is None:
        return None
    from agent.search import StaticEmbedder

    return StaticEmbedder(encoder)


async def _batch_embedder(settings: Settings, connections: Connections) -> BatchEmbedder | None:
    chosen = embedding_endpoint(settings)
    if chosen is None:
        return None
    from agent.llm import Demand, HttpBatchEmbedder, ModelServer, Retrier, resolve_model

    client, time_left = connections.client(), connections.time_left
    if not chosen.model:
        # Waiting for the model list of a server that hangs must not use up a short run.
        retrier = Retrier(time_left=lambda: time_left() * _SHARE_OF_TIME)
        server = ModelServer(chosen, client, retrier=retrier, embeddings=True)
        chosen = (await resolve_model(server, Demand(0, 0))).endpoint
    return HttpBatchEmbedder(
        chosen, client, request_seconds=settings.request_timeout, time_left=time_left
    )


def embedding_endpoint(settings: Settings) -> Endpoint | None:
    """Return the embedding server that the settings choose, or None. Raises ConfigurationError."""
    from agent.llm import ENVIRONMENT_NAMES, choose_embedding_endpoint

    if settings.embed == "off":
        return None
    chosen = choose_embedding_endpoint(
        settings, environment(ENVIRONMENT_NAMES), _chat_endpoint_if_any(settings)
    )
    if chosen is None and settings.embed == "remote":
        raise ConfigurationError(
            "--embed remote needs a model: set PATCHSHOT_EMBED_MODEL (and, if it is another "
            "server than the chat model's, PATCHSHOT_EMBED_BASE_URL)"
        )
    return chosen


def embedding_in_words(settings: Settings) -> str:
    """Describe the source of embeddings for `agent doctor`."""
    chosen = embedding_endpoint(settings)
    if chosen is None:
        return "off: lexical retrieval (set PATCHSHOT_EMBED_MODEL)"
    return in_words(chosen)


async def live_embedding(settings: Settings) -> str:
    """Request one embedding for `agent doctor --live`; return its size and duration as text."""
    async with AsyncExitStack() as stack:
        connections = Connections(stack, time_left=make_clock(60.0))
        model = await _batch_embedder(settings, connections)
        if model is None:
            return "off"
        started = time.perf_counter()
        vectors = await model.embed_batch(["def ready(): ..."], kind="document")
    seconds = time.perf_counter() - started
    return f"{model.name} answered {vectors.shape[1]} dimensions in {seconds:.1f} s"


def _chat_endpoint_if_any(settings: Settings) -> Endpoint | None:
    with contextlib.suppress(ConfigurationError):
        return endpoint(settings)
    return None


def _concurrency() -> int:
    given = environment(("EMBED_CONCURRENCY",)).get("EMBED_CONCURRENCY", "")
    return max(1, int(given)) if given.isdecimal() else DEFAULT_CONCURRENCY
