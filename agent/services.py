"""The composition root: builds the real parts from settings and passes them in.

Everything heavy is imported in the function that needs it, so that a command pays only for what it
uses.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError, SandboxUnavailable
from agent.protocols import ChatModel, Embedder, Reporter, Retriever, Services, Snapshot, Validator
from agent.settings import Settings, environment

if TYPE_CHECKING:
    import httpx

    from agent.context.options import PackingOptions
    from agent.llm.budget import BudgetedChatModel
    from agent.llm.endpoint import Endpoint
    from agent.llm.recording import Recorder
    from agent.llm.replay import Recording
    from agent.pipeline import SolveOptions
    from agent.protocols import TokenCounter
    from agent.result import Ledger
    from agent.retrieval.index import IndexSummary
    from agent.retrieval.options import RetrievalOptions
    from agent.types import Problem
    from sandbox.types import Probe

# The original system's default; EMBED_CONCURRENCY is its name for the setting.
DEFAULT_CONCURRENCY = 8

# The pipeline's own clock ends a run at its time limit. Requests and waits are cut a moment later,
# so that a slow server is reported as the time limit that it is.
_GRACE_SECONDS = 2.0


@asynccontextmanager
async def open_services(
    settings: Settings,
    problem: Problem,
    snapshot: Snapshot,
    reporter: Reporter,
    ledger: Ledger,
    *,
    record: Path | None = None,
    replay: Path | None = None,
) -> AsyncIterator[Services]:
    """All parts of one `solve`. Closes connections, files and private copies at the end.

    Raises ConfigurationError or SandboxUnavailable before anything is paid for.
    """
    from agent.retrieval.chunking import TreeSitterChunker

    async with AsyncExitStack() as stack:
        validator = await _open_validator(stack, settings, problem, snapshot, reporter)
        time_left = _clock(settings.timeout)
        tapes = _Tapes(stack, record, replay)
        client = _Client(stack)
        chat = _chat_model(settings, client, reporter, time_left, tapes)
        budgeted = _within_budget(settings, chat)
        ledger.usage = lambda: budgeted.usage
        embedder = _embedder(stack, settings, client, reporter, time_left, tapes)
        yield Services(
            retriever=_retriever(settings, embedder, reporter),
            chunker=TreeSitterChunker(),
            counter=make_counter(budgeted.model),
            chat=budgeted,
            validator=validator,
            reporter=reporter,
        )


@asynccontextmanager
async def open_retriever(
    settings: Settings, reporter: Reporter, *, workers: int | None = None
) -> AsyncIterator[Retriever]:
    """Retrieval alone, for the commands that make no model call.

    `workers`: processes that cut files on a cold cache; None for one a core.
    """
    async with AsyncExitStack() as stack:
        embedder = _embedder(
            stack, settings, _Client(stack), reporter, lambda: math.inf, _Tapes(stack)
        )
        yield _retriever(settings, embedder, reporter, workers)


def solve_options(settings: Settings) -> SolveOptions:
    """What the pipeline decides itself, from the settings."""
    from agent.iterative import IterativeOptions
    from agent.patching.repair import switched_off
    from agent.pipeline import SolveOptions
    from agent.policy import PolicyOptions

    # Names that there are not are said before a call is paid.
    switched_off(settings.no_repair)
    retrieval_options(settings)
    return SolveOptions(
        packing=packing_options(settings),
        policy=PolicyOptions(repairs=settings.repairs, iterative=settings.iterative),
        iterative=IterativeOptions(
            max_steps=settings.max_steps,
            max_output_tokens=settings.max_output_tokens,
            allow=settings.allow,
            no_repair=settings.no_repair,
            include_test=settings.include_test,
        ),
        max_output_tokens=settings.max_output_tokens,
        timeout=settings.timeout,
        allow=settings.allow,
        no_repair=settings.no_repair,
        include_test=settings.include_test,
    )


def packing_options(settings: Settings) -> PackingOptions:
    """How the context is filled."""
    from agent.context.options import PackingOptions
    from agent.retrieval.presets import split_name

    options = PackingOptions(
        budget=settings.context_tokens,
        reserve=settings.context_reserve,
        max_chunks=settings.max_chunks,
    )
    if split_name(settings.preset)[0] == "original":
        # Whole chunks only, nothing around them, and the end at the first that does not fit.
        return replace(
            options,
            max_chunks=settings.max_chunks or 30,
            support_share=0.0,
            chunk_share=1.0,
            part_share=0.0,
            stop_at_oversized=True,
        )
    return options


def make_counter(model: str | None) -> TokenCounter:
    """The exact counter that fits the model best."""
    from agent.tokens import TiktokenCounter, encoding_for

    return TiktokenCounter(encoding_for(model or ""))


# -------------------------------------------------------------------------------- model and budget


class _Client:
    """The one HTTP client, made when first needed, closed with the stack."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._client: httpx.AsyncClient | None = None

    def get(self) -> httpx.AsyncClient:
        from agent.llm.http import create_client

        if self._client is None:
            self._client = create_client()
            self._stack.push_async_callback(self._client.aclose)
        return self._client


class _Tapes:
    """What is recorded to and replayed from, if anything."""

    def __init__(
        self, stack: AsyncExitStack, record: Path | None = None, replay: Path | None = None
    ) -> None:
        self.recorder: Recorder | None = None
        self.recording: Recording | None = None
        if record is not None:
            from agent.llm.recording import Recorder

            self.recorder = stack.enter_context(Recorder(record))
        if replay is not None:
            from agent.llm.replay import Recording

            self.recording = Recording(replay)


def endpoint(settings: Settings) -> Endpoint:
    """The chat server that the settings choose. Raises ConfigurationError."""
    from agent.llm.endpoint import ENVIRONMENT_NAMES, ProviderSettings, choose_endpoint

    return choose_endpoint(
        ProviderSettings(settings.base_url, settings.api_key, settings.model),
        environment(ENVIRONMENT_NAMES),
    )


def _chat_model(
    settings: Settings,
    client: _Client,
    reporter: Reporter,
    time_left: Callable[[], float],
    tapes: _Tapes,
) -> ChatModel:
    if tapes.recording is not None:
        from agent.llm.replay import ReplayingChatModel

        return ReplayingChatModel(tapes.recording)
    from agent.llm.openai_chat import OpenAIChatModel
    from agent.llm.retry import Retrier

    chosen = endpoint(settings)
    model: ChatModel = OpenAIChatModel(
        chosen,
        client.get(),
        make_counter(chosen.model),
        temperature=settings.temperature,
        retrier=Retrier(report=reporter, time_left=time_left),
        request_seconds=settings.request_timeout,
    )
    if tapes.recorder is not None:
        from agent.llm.recording import RecordingChatModel

        model = RecordingChatModel(model, tapes.recorder)
    return model


def _within_budget(settings: Settings, chat: ChatModel) -> BudgetedChatModel:
    from agent.llm.budget import Budget, BudgetedChatModel
    from agent.llm.prices import Price, find_price

    price = find_price(chat.model)
    if settings.price_input is not None and settings.price_output is not None:
        price = Price(settings.price_input, settings.price_output)
    budget = Budget(settings.max_cost, settings.max_tokens, settings.max_calls, price)
    return BudgetedChatModel(chat, budget)


def _clock(seconds: float) -> Callable[[], float]:
    deadline = time.monotonic() + seconds + _GRACE_SECONDS
    return lambda: deadline - time.monotonic()


async def live_call(settings: Settings) -> str:
    """One real call, for `agent doctor --live`: what answered, and how fast."""
    from agent.prompting import make_prompt
    from agent.types import Message

    async with AsyncExitStack() as stack:
        chat = _chat_model(settings, _Client(stack), lambda _: None, _clock(60.0), _Tapes(stack))
        prompt = make_prompt(
            [Message("user", "Reply with the one word: ready")], make_counter(chat.model)
        )
        done = await chat.complete(prompt, max_output_tokens=256)
    return f"{done.model} answered {done.text.strip()[:40]!r} in {done.seconds:.1f} s"


# --------------------------------------------------------------------------------------- retrieval


def _embedder(
    stack: AsyncExitStack,
    settings: Settings,
    client: _Client,
    reporter: Reporter,
    time_left: Callable[[], float],
    tapes: _Tapes,
) -> Embedder | None:
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
    client: _Client,
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


def in_words(chosen: Endpoint) -> str:
    """Which model, where, and why; without what a URL may carry of credentials."""
    from agent.llm.endpoint import without_credentials

    return f"{chosen.model} at {without_credentials(chosen.base_url)} ({chosen.why})"


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


def _retriever(
    settings: Settings, embedder: Embedder | None, reporter: Reporter, workers: int | None = None
) -> Retriever:
    from agent.retrieval.ranking import HybridRetriever

    return HybridRetriever(
        retrieval_options(settings),
        embedder=embedder,
        index_path=index_path(settings),
        reporter=reporter,
        workers=workers,
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


def fill_index(
    settings: Settings, snapshot: Snapshot, reporter: Reporter, *, workers: int | None = None
) -> IndexSummary:
    """Cut and cache what is not cached yet, as the retriever will look for it.

    `workers` as for `open_retriever`.
    """
    from agent.retrieval.index import Index
    from agent.retrieval.shipped import load_shipped

    encoder = load_shipped(retrieval_options(settings)).encoder
    return Index(reporter, index_path(settings), workers, encoder=encoder).refresh(snapshot)


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


# ------------------------------------------------------------------------------------- validation


async def _open_validator(
    stack: AsyncExitStack,
    settings: Settings,
    problem: Problem,
    snapshot: Snapshot,
    reporter: Reporter,
) -> Validator:
    from agent.validation.validator import NullValidator, SandboxValidator, ValidationOptions
    from sandbox.choose import choose_sandbox
    from sandbox.types import SandboxError

    if not settings.tests:
        return NullValidator()
    try:
        sandbox = await asyncio.to_thread(choose_sandbox, unsafe=settings.unsafe_no_sandbox)
    except SandboxError as error:
        raise SandboxUnavailable(
            f"{error} (or --no-tests to check the syntax only, or --unsafe-no-sandbox to run the "
            "target's tests without isolation)"
        ) from None
    options = ValidationOptions(
        python=settings.python,
        test_cmd=settings.test_cmd,
        max_test_files=settings.max_test_files,
        timeout=settings.test_timeout,
        virtual_env=environment(("VIRTUAL_ENV",)).get("VIRTUAL_ENV"),
    )
    validator = SandboxValidator(snapshot, problem, sandbox, options, reporter)
    return await stack.enter_async_context(validator)


def probe_sandbox(settings: Settings) -> Probe:
    """What the chosen backend guarantees here, found by trying it."""
    from sandbox.bwrap import BwrapSandbox
    from sandbox.process import ProcessSandbox

    backend = ProcessSandbox() if settings.unsafe_no_sandbox else BwrapSandbox()
    return backend.probe()
