"""Where embeddings come from, if from anywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError
from agent.protocols import Embedder, Reporter
from agent.services.model import Client, Tapes, endpoint, in_words
from agent.settings import Settings, environment

if TYPE_CHECKING:
    from agent.llm.endpoint import Endpoint

# The original system's default; EMBED_CONCURRENCY is its name for the setting.
DEFAULT_CONCURRENCY = 8


def make_embedder(
    stack: AsyncExitStack,
    settings: Settings,
    client: Client,
    reporter: Reporter,
    time_left: Callable[[], float],
    tapes: Tapes,
) -> Embedder | None:
    """The embedder that the settings choose, None for lexical retrieval."""
    if tapes.recording is not None:
        from agent.llm.replay import ReplayingEmbedder

        return ReplayingEmbedder(tapes.recording) if tapes.recording.has_embeddings else None
    embedder = _live_embedder(stack, settings, client, reporter, time_left)
    if embedder is not None and tapes.recorder is not None:
        from agent.llm.recording import RecordingEmbedder

        return RecordingEmbedder(embedder, tapes.recorder)
    return embedder


def _live_embedder(
    stack: AsyncExitStack,
    settings: Settings,
    client: Client,
    reporter: Reporter,
    time_left: Callable[[], float],
) -> Embedder | None:
    from agent.retrieval.embedding_protocol import BatchEmbedder

    model: BatchEmbedder
    if settings.embed == "local":
        from agent.retrieval.local_embedder import LocalEmbedder, local_model

        model = LocalEmbedder(local_model(settings.embed_weights))
    else:
        chosen = embedding_endpoint(settings)
        if chosen is None:
            return None
        from agent.llm.embeddings import OpenAIBatchEmbedder

        model = OpenAIBatchEmbedder(chosen, client.get(), time_left=time_left)
    from agent.retrieval.embedding import EmbeddingOptions, ParallelEmbedder
    from agent.retrieval.vector_cache import VectorCache

    options = EmbeddingOptions(concurrency=_concurrency(settings))
    cache = VectorCache(settings.cache_dir / "vectors.sqlite", reporter)
    stack.callback(cache.close)
    return ParallelEmbedder(model, reporter, options, cache)


def embedding_endpoint(settings: Settings) -> Endpoint | None:
    """The embedding server that the settings choose, None for none. Raises ConfigurationError."""
    from agent.llm.endpoint import ENVIRONMENT_NAMES, ProviderSettings, choose_embedding_endpoint

    if settings.embed in ("off", "local"):
        return None
    chosen = choose_embedding_endpoint(
        ProviderSettings(settings.embed_base_url, settings.embed_api_key, settings.embed_model),
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
    """Where embeddings come from, for `agent doctor`."""
    if settings.embed == "local":
        from agent.retrieval.local_embedder import LocalEmbedder, local_model

        return f"local: {LocalEmbedder(local_model(settings.embed_weights)).name}"
    chosen = embedding_endpoint(settings)
    if chosen is None:
        return "off: lexical retrieval (set PATCHSHOT_EMBED_MODEL, or --embed local)"
    return in_words(chosen)


def _chat_endpoint_if_any(settings: Settings) -> Endpoint | None:
    with contextlib.suppress(ConfigurationError):
        return endpoint(settings)
    return None


def _concurrency(settings: Settings) -> int:
    if settings.embed_concurrency is not None:
        return settings.embed_concurrency
    given = environment(("EMBED_CONCURRENCY",)).get("EMBED_CONCURRENCY", "")
    return max(1, int(given)) if given.isdecimal() else DEFAULT_CONCURRENCY
