"""The pool of corpora, and what fills it: from settings to real parts.

Nothing of `solve` imports this module unless a setting asks for it: it is no part of the bundle.
"""

from __future__ import annotations

import enum
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from agent.corpora.passages import Label
from agent.errors import StoreUnreachable
from agent.events import Notice
from agent.protocols import Reporter, Snapshot
from agent.services.context import make_counter
from agent.services.embedding import make_embedder
from agent.services.evidence import places_of
from agent.services.model import Client, Tapes, make_chat_model, make_clock, within_budget
from agent.services.retrieval import make_retriever, retrieval_options
from agent.settings import Settings

if TYPE_CHECKING:
    from agent.corpora.intent_writing import IntentWriter
    from agent.corpora.keywords import KeywordWriter
    from agent.corpora.memory import Memory
    from agent.corpora.pool import Pool
    from agent.corpora.symbols import Symbol
    from agent.llm.budget import BudgetedChatModel
    from agent.protocols import TokenCounter
    from agent.stores.base import CollectionInfo, VectorStore
    from agent.types import Prompt


class StoreUse(enum.Enum):
    """What a store is opened for, which says what may stand in for one that cannot be had.

    SEARCH: the embedded one, then one in memory. FILL: the embedded one, which must be kept.
    MANAGE: none; what is listed, dropped or removed is meant of the store that was named.
    """

    SEARCH = enum.auto()
    FILL = enum.auto()
    MANAGE = enum.auto()


def open_vector_store(
    settings: Settings, reporter: Reporter, use: StoreUse = StoreUse.FILL
) -> VectorStore:
    """The store of the settings, or the embedded one. Raises StoreError, ConfigurationError."""
    from agent.stores.opening import open_store, open_temporary

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
    """Which store `open_vector_store` would open, and what it holds; nothing is made or changed.

    A URL without a password, and the collections, None where they cannot be looked at (see
    `agent.stores.looking`). Raises StoreError, ConfigurationError.
    """
    from agent.stores.looking import collections_at
    from agent.stores.opening import shown_url

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
    """A pool of the settings. `keywords`: a model may be asked for some.

    Raises ConfigurationError, StoreError.
    """
    from agent.corpora.opening import make_pool
    from agent.retrieval.shipped import load_shipped

    async with AsyncExitStack() as stack:
        client = Client(stack)
        embedder = await make_embedder(
            stack, settings, client, reporter, lambda: math.inf, Tapes(stack)
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
    """What has the configured model write intents, within the limits of the settings.

    Raises ConfigurationError, ProviderError.
    """
    from agent.corpora.intent_writing import IntentWriter
    from agent.corpora.intents import IntentBook
    from agent.corpora.project import project_name

    async with AsyncExitStack() as stack:
        chat = await _chat(stack, settings, reporter)
        counter = make_counter(chat.model)
        book = IntentBook(places_of(settings).intents(project_name(snapshot)))
        yield IntentWriter(book, chat, lambda symbol: intent_prompt(symbol, counter), reporter)


def memory_of(settings: Settings, snapshot: Snapshot) -> Memory:
    """What is remembered of the snapshot's project."""
    from agent.corpora.memory import Memory
    from agent.corpora.project import project_name

    return Memory(places_of(settings).memory(project_name(snapshot)))


def intent_prompt(symbol: Symbol, counter: TokenCounter) -> Prompt:
    """What a model is shown of a symbol; secrets masked, tags of its own defused."""
    from agent.corpora.intent_writing import MAX_CODE
    from agent.prompting import make_prompt, render
    from agent.secrets.masking import mask_secrets
    from agent.types import Message

    code = mask_secrets(symbol.code).text[:MAX_CODE].replace("</symbol", "<\\/symbol")
    text = render("intents", kind=symbol.kind.value, path=symbol.path, name=symbol.name, code=code)
    return make_prompt([Message("user", text)], counter)


async def _chat(stack: AsyncExitStack, settings: Settings, reporter: Reporter) -> BudgetedChatModel:
    clock = make_clock(settings.timeout)
    made = await make_chat_model(stack, settings, Client(stack), reporter, clock, Tapes(stack))
    return within_budget(settings, made)


async def _keywords(stack: AsyncExitStack, settings: Settings, reporter: Reporter) -> KeywordWriter:
    from agent.corpora.keywords import KeywordWriter
    from agent.prompting import make_prompt, render
    from agent.secrets.masking import mask_secrets
    from agent.types import Message

    chat = await _chat(stack, settings, reporter)
    counter = make_counter(chat.model)

    def prompt(query: str) -> Prompt:
        masked = mask_secrets(query).text[:4_000].replace("</query", "<\\/query")
        return make_prompt([Message("user", render("keywords", query=masked))], counter)

    return KeywordWriter(places_of(settings).keywords(), chat, prompt)
