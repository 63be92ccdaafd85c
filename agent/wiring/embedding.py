"""The embedding server or local embedding model that the settings choose."""

from __future__ import annotations

import contextlib
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError
from agent.settings import Settings, environment
from agent.types.protocols import Embedder
from agent.wiring.model import Connections, endpoint, in_words, make_clock

if TYPE_CHECKING:
    from agent.llm import Endpoint
    from agent.retrieval.embedding import BatchEmbedder

# Embedding calls at once, where EMBED_CONCURRENCY is not set: the default of the original system.
DEFAULT_CONCURRENCY = 8

_SHARE_OF_TIME = 0.1  # share of the remaining run time that listing the models may take


async def make_embedder(settings: Settings, connections: Connections) -> Embedder | None:
    """Return the embedder that the settings choose; None means lexical retrieval.

    Asks a miner's proxy for its list of models if the settings name no model.
    """
    recording, recorder = connections.recording, connections.recorder
    if recording is not None:
        from agent.llm.recording import ReplayingEmbedder

        return ReplayingEmbedder(recording) if recording.has_embeddings else None
    model = await _batch_embedder(settings, connections)
    if model is None:
        return None
    from agent.retrieval.embedding import EmbeddingOptions, ParallelEmbedder, VectorCache

    options = EmbeddingOptions(concurrency=_concurrency())
    cache = VectorCache(settings.cache_dir / "vectors.sqlite", connections.reporter)
    connections.stack.callback(cache.close)
    # A model on this machine may be slow but does not hang, so it gets no time limit.
    bound = None if settings.embed == "local" else connections.time_left
    embedder = ParallelEmbedder(model, connections.reporter, options, cache, bound)
    if recorder is None:
        return embedder
    from agent.llm.recording import RecordingEmbedder

    return RecordingEmbedder(embedder, recorder)


async def _batch_embedder(settings: Settings, connections: Connections) -> BatchEmbedder | None:
    if settings.embed == "local":
        from agent.retrieval.embedding.local import LocalEmbedder

        return LocalEmbedder()
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
    from agent.llm import ENVIRONMENT_NAMES, ProviderSettings, choose_embedding_endpoint

    if settings.embed in ("off", "local"):
        return None
    chosen = choose_embedding_endpoint(
        ProviderSettings(
            settings.embed_base_url,
            settings.embed_api_key,
            settings.embed_model,
        ),
        environment(ENVIRONMENT_NAMES),
        _chat_endpoint_if_any(settings),
    )
    if chosen is None and settings.embed == "remote":
        raise ConfigurationError(
            "--embed remote needs a model: set PATCHSHOT_EMBED_MODEL (and, if it is another "
            "server than the chat model's, PATCHSHOT_EMBED_BASE_URL)"
        )
    return chosen


def embedding_in_words(settings: Settings) -> str:
    """Describe the source of embeddings for `agent doctor`."""
    if settings.embed == "local":
        from agent.retrieval.embedding.local import LocalEmbedder

        return f"local: {LocalEmbedder().name}"
    chosen = embedding_endpoint(settings)
    if chosen is None:
        return "off: lexical retrieval (set PATCHSHOT_EMBED_MODEL, or --embed local)"
    return in_words(chosen)


async def live_embedding(settings: Settings) -> str:
    """Request one embedding without the cache, for `agent doctor --live`.

    Return its size and duration as text.
    """
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
