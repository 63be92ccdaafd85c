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
from agent.events import Notice
from agent.protocols import Reporter, Snapshot
from agent.search import Label
from agent.services.embedding import make_embedder
from agent.services.model import (
    Recordings,
    SharedClient,
    make_chat_model,
    make_clock,
    make_counter,
    within_budget,
)
from agent.services.retrieval import make_retriever, retrieval_options
from agent.services.search.evidence import places_of
from agent.settings import Settings

if TYPE_CHECKING:
    from agent.llm import BudgetedChatModel
    from agent.protocols import TokenCounter
    from agent.search import IntentWriter, KeywordWriter, Memory, Pool, Symbol
    from agent.search.stores import CollectionInfo, VectorStore
    from agent.types import Prompt


class StoreUse(enum.Enum):
    """The purpose of opening a store. It decides which store replaces one that is unreachable.

    SEARCH falls back to the embedded store, then to a store in memory. FILL falls back to the
    embedded store, because the vectors must persist. MANAGE has no fallback: listing and removing
    must only affect the store that the user named.
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
    falls_back = use is not StoreUse.MANAGE and settings.store_fallback == "embedded"
    url = settings.store or f"sqlite://{quote(str(own.absolute()))}"
    try:
        return open_store(url, reporter, own if falls_back and settings.store else None)
    except StoreUnreachable as error:
        if use is not StoreUse.SEARCH or not falls_back:
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
    embedded = f"sqlite://{quote(str(own.absolute()))}"
    url = settings.store or embedded
    try:
        return shown_url(url), collections_at(url, reporter)
    except StoreUnreachable as error:
        falls_back = use is not StoreUse.MANAGE and settings.store_fallback == "embedded"
        if not (falls_back and settings.store):
            raise
        reporter(Notice(f"{error}; the embedded store in {own} would be used", "warning"))
        return shown_url(embedded), collections_at(embedded, reporter)


@asynccontextmanager
async def open_pool(
    settings: Settings,
    snapshot: Snapshot,
    reporter: Reporter,
    labels: Sequence[Label],
    *,
    keywords: bool = False,
    use: StoreUse = StoreUse.SEARCH,
) -> AsyncIterator[Pool]:
    """Open a pool from the settings. With `keywords`, a model may be asked for keywords.

    Raises ConfigurationError, StoreError.
    """
    from agent.ranking import load_shipped
    from agent.search import make_pool

    async with AsyncExitStack() as stack:
        client = SharedClient(stack)
        embedder = await make_embedder(
            stack, settings, client, reporter, lambda: math.inf, Recordings(stack)
        )
        store = stack.enter_context(open_vector_store(settings, reporter, use))
        code = Label.CODE in labels
        yield make_pool(
            snapshot,
            labels,
            places_of(settings),
            reporter,
            encoder=load_shipped(retrieval_options(settings)).encoder,
            embedder=embedder,
            store=store,
            retriever=make_retriever(settings, embedder, reporter) if code else None,
            keywords=await _keywords(stack, settings, reporter) if keywords else None,
        )


@asynccontextmanager
async def open_intent_writer(
    settings: Settings, snapshot: Snapshot, reporter: Reporter
) -> AsyncIterator[IntentWriter]:
    """Open a writer of intents that uses the configured model within the limits of the settings.

    Raises ConfigurationError, ProviderError.
    """
    from agent.search import IntentFile, IntentWriter, project_name

    async with AsyncExitStack() as stack:
        chat = await _chat(stack, settings, reporter)
        counter = make_counter(chat.model)
        book = IntentFile(places_of(settings).intents(project_name(snapshot)))
        yield IntentWriter(book, chat, lambda symbol: intent_prompt(symbol, counter), reporter)


def memory_of(settings: Settings, snapshot: Snapshot) -> Memory:
    """Return the accepted patches of the snapshot's project."""
    from agent.search import Memory, project_name

    return Memory(places_of(settings).memory(project_name(snapshot)))


def intent_prompt(symbol: Symbol, counter: TokenCounter) -> Prompt:
    """Return the prompt for the intents of a symbol, with secrets masked and its own tags
    escaped.
    """
    from agent.prompting import make_prompt, render
    from agent.search import MAX_CODE
    from agent.secrets import mask_secrets
    from agent.types import Message

    code = mask_secrets(symbol.code).text[:MAX_CODE].replace("</symbol", "<\\/symbol")
    text = render("intents", kind=symbol.kind.value, path=symbol.path, name=symbol.name, code=code)
    return make_prompt([Message("user", text)], counter)


async def _chat(stack: AsyncExitStack, settings: Settings, reporter: Reporter) -> BudgetedChatModel:
    clock = make_clock(settings.timeout)
    made = await make_chat_model(
        stack, settings, SharedClient(stack), reporter, clock, Recordings(stack)
    )
    return within_budget(settings, made)


async def _keywords(stack: AsyncExitStack, settings: Settings, reporter: Reporter) -> KeywordWriter:
    from agent.prompting import make_prompt, render
    from agent.search import KeywordWriter
    from agent.secrets import mask_secrets
    from agent.types import Message

    chat = await _chat(stack, settings, reporter)
    counter = make_counter(chat.model)

    def prompt(query: str) -> Prompt:
        masked = mask_secrets(query).text[:4_000].replace("</query", "<\\/query")
        return make_prompt([Message("user", render("keywords", query=masked))], counter)

    return KeywordWriter(places_of(settings).keywords(), chat, prompt)
