"""Builds the pool of corpora, and the parts that fill it, from settings.

`solve` imports this module only if a setting asks for it. The miner bundle does not contain it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from agent.errors import StoreUnreachable
from agent.search import Label
from agent.settings import Settings
from agent.types.protocols import ChatModel, Embedder, Reporter, Retriever, Snapshot
from agent.wiring.embedding import make_embedder
from agent.wiring.model import (
    Recordings,
    SharedClient,
    make_counter,
    open_chat,
)
from agent.wiring.retrieval import (
    make_index,
    make_retriever,
    retrieval_options,
    with_words,
)
from agent.wiring.search.evidence import hunk_filter, places_of

if TYPE_CHECKING:
    from agent.search import (
        FindWords,
        IntentFile,
        IntentWriter,
        KeywordWriter,
        Memory,
        Pool,
        Symbol,
    )
    from agent.search.precomputed import SemanticSettings
    from agent.search.stores import CollectionInfo, VectorStore
    from agent.types import Problem, Prompt
    from agent.types.protocols import TokenCounter


INTENTS_PER_SYMBOL = 5
INTENT_WORKERS = 8
"""Calls at once that write intents."""


class StoreUse(enum.Enum):
    """The purpose of opening a store. It decides which store replaces one that is unreachable.

    A store that the user named is used, or the command ends. The embedded one is replaced by a
    store in memory for SEARCH only.
    """

    SEARCH = enum.auto()
    FILL = enum.auto()
    MANAGE = enum.auto()


def open_vector_store(
    settings: Settings, reporter: Reporter, use: StoreUse = StoreUse.FILL
) -> VectorStore:
    """Open the store of the settings, or the embedded one.

    Raises StoreError, ConfigurationError.
    """
    from agent.search.stores import open_store, open_temporary

    own = places_of(settings).store
    url = settings.store or f"sqlite://{quote(str(own.absolute()))}"
    try:
        return open_store(url, reporter)
    except StoreUnreachable as error:
        if use is not StoreUse.SEARCH or settings.store is not None:
            raise
        return open_temporary(error, reporter)


def look_into_store(
    settings: Settings, reporter: Reporter, use: StoreUse
) -> tuple[str, tuple[CollectionInfo, ...] | None]:
    """Return the store that `open_vector_store` would open and its contents, without changing it.

    The result is a URL without a password and the collections. The collections are None if they
    cannot be listed without changes (see `agent.search.stores.registry`). Raises StoreError,
    ConfigurationError.
    """
    from agent.search.stores import collections_at, shown_url

    own = places_of(settings).store
    url = settings.store or f"sqlite://{quote(str(own.absolute()))}"
    return shown_url(url), collections_at(url, reporter)


@asynccontextmanager
async def open_pool(
    settings: Settings,
    snapshot: Snapshot,
    reporter: Reporter,
    labels: Sequence[Label],
    *,
    keywords: bool = False,
    use: StoreUse = StoreUse.SEARCH,
    agent: SemanticSettings | None = None,
) -> AsyncIterator[Pool]:
    """Open a pool from the settings. With `keywords`, a model may be asked for keywords.

    `agent` limits the results of the corpus of vectors.

    Raises ConfigurationError, StoreError.
    """
    from agent.retrieval.ranking import load_shipped
    from agent.search import make_pool

    async with AsyncExitStack() as stack:
        client = SharedClient(stack)
        embedder = await make_embedder(
            stack, settings, client, reporter, lambda: math.inf, Recordings(stack)
        )
        store = stack.enter_context(open_vector_store(settings, reporter, use))
        code = Label.CODE in labels
        retriever = _code_retriever(settings, embedder, reporter) if code else None
        yield make_pool(
            snapshot,
            labels,
            places_of(settings),
            reporter,
            encoder=load_shipped(retrieval_options(settings)).encoder,
            embedder=embedder,
            store=store,
            retriever=retriever,
            keywords=await _keywords(stack, settings, reporter) if keywords else None,
            hunks=hunk_filter(settings),
            precomputed=settings.precomputed,
            agent=agent,
        )


def _code_retriever(settings: Settings, embedder: Embedder | None, reporter: Reporter) -> Retriever:
    retriever = make_retriever(settings, embedder, reporter)
    if settings.expand != "project":  # a pool asks for the keywords of a model itself
        return retriever
    return with_words(settings, retriever, None, reporter)


@asynccontextmanager
async def open_intent_writer(
    settings: Settings, snapshot: Snapshot, reporter: Reporter
) -> AsyncIterator[IntentWriter]:
    """Open a writer of intents that uses the configured model within the limits of the settings.

    Raises ConfigurationError, ProviderError.
    """
    from agent.search import IntentWriter, project_description, project_name

    async with AsyncExitStack() as stack:
        if settings.side_model is not None:
            # Prices of the settings are those of the other model.
            own = {"model": settings.side_model, "prices": None}
            settings = settings.model_copy(update=own)
        chat = await open_chat(stack, settings, reporter)
        counter = make_counter(chat.model)
        about = (project_name(snapshot), project_description(snapshot))
        book = intent_file(settings, snapshot)
        yield IntentWriter(
            book,
            chat,
            lambda symbol: intent_prompt(symbol, counter, *about, INTENTS_PER_SYMBOL),
            reporter,
            INTENT_WORKERS,
            INTENTS_PER_SYMBOL,
        )


def intent_file(settings: Settings, snapshot: Snapshot) -> IntentFile:
    """Return the intents that models wrote for the snapshot's project."""
    from agent.search import IntentFile, project_name

    return IntentFile(places_of(settings).intents(project_name(snapshot)))


def memory_of(settings: Settings, snapshot: Snapshot) -> Memory:
    """Return the accepted patches of the snapshot's project."""
    from agent.search import Memory, project_name

    return Memory(places_of(settings).memory(project_name(snapshot)))


def intent_prompt(
    symbol: Symbol, counter: TokenCounter, project: str, description: str, count: int
) -> Prompt:
    """Return the prompt for `count` intents of a symbol, with secrets masked and its own tags
    escaped.
    """
    from agent.run.prompting import as_data, make_prompt, render
    from agent.search import MAX_CODE_TOKENS
    from agent.shared.secrets import mask_secrets
    from agent.types import Message

    code = counter.truncate(mask_secrets(symbol.code).text, MAX_CODE_TOKENS)
    text = render(
        "intents",
        kind=symbol.kind.value,
        path=symbol.path,
        name=symbol.name,
        code=code.replace("</symbol", "<\\/symbol"),
        project=as_data(project.rpartition("/")[2]).replace("</project", "<\\/project"),
        description=as_data(description).replace("</project", "<\\/project"),
        count=count,
    )
    return make_prompt([Message("user", text)], counter)


async def _keywords(stack: AsyncExitStack, settings: Settings, reporter: Reporter) -> KeywordWriter:
    return keyword_writer(settings, await open_chat(stack, settings, reporter))


def word_finder(settings: Settings, chat: ChatModel | None, reporter: Reporter) -> FindWords:
    """Return what finds the words of `--expand`. `chat` is needed for those of a model."""
    from agent.search import IntentSource, ProjectWordsFinder, WordIndexCache

    if settings.expand == "llm":
        assert chat is not None
        writer = keyword_writer(settings, chat)

        async def ask(problem: Problem, _: Snapshot) -> Sequence[str]:
            return await writer.keywords(problem.text)

        return ask
    shelves = WordIndexCache(places_of(settings).cache / "shelves.sqlite", reporter)
    return ProjectWordsFinder(IntentSource(make_index(settings, reporter)), shelves)


def keyword_writer(settings: Settings, chat: ChatModel) -> KeywordWriter:
    """Return what asks this model for the keywords of a query."""
    from agent.run.prompting import as_data, make_prompt, render
    from agent.search import KeywordWriter
    from agent.shared.secrets import mask_secrets
    from agent.types import Message

    counter = make_counter(chat.model)

    def prompt(query: str) -> Prompt:
        masked = " ".join(mask_secrets(query).text[:4_000].split())  # one line
        text = render("keywords", intents=as_data(masked))
        return make_prompt([Message("user", text)], counter)

    return KeywordWriter(places_of(settings).keywords(), chat, prompt)
