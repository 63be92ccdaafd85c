"""A small project with documents, and a pool over it: for the tests of `agent.search`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agent.retrieval.embedding import StaticEncoder, static_in
from agent.retrieval.index.index import Index
from agent.search import SearchPaths, make_pool
from agent.search.passages import CorpusSource, CorpusUnavailable, Label, Passage
from agent.search.pool import Pool
from agent.search.stores import open_store
from agent.types.events import Event
from agent.types.protocols import Embedder, Retriever, Snapshot
from tests.support.fakes import MemorySnapshot

FILES = {
    "README.md": (
        "# Shop\n\nA small shop for the tests of retrieval.\n\n"
        "## Expired cookies\n\nCookies whose time is over are dropped by `CookieJar.expire`.\n"
    ),
    "docs/guide.rst": (
        "Guide\n=====\n\nHow prices are added up in a cart, step by step.\n\n"
        "Totals\n------\n\nThe total of a cart is the sum of all its prices.\n"
    ),
    "shop/cookies.py": (
        '"""Cookies."""\n\n\nclass CookieJar:\n    """Keeps the cookies of a session."""\n\n'
        "    def expire(self, now: float) -> int:\n"
        '        """Drop cookies that are out of date.\n\n'
        "        Raises ValueError for a time in the past.\n"
        '        """\n'
        "        return 0\n"
    ),
    "shop/cart.py": (
        "class Cart:\n    def total(self, prices):\n        # add them up\n"
        "        return sum(prices)\n"
    ),
    "web/api.js": (
        "/**\n * Sends an order to the warehouse.\n */\n"
        "export function sendOrder(order, address) {\n  return post(order, address);\n}\n"
    ),
    "tests/test_cart.py": "def test_total():\n    assert True\n",
}


class ListSource:
    """A `CorpusSource` of given passages; `why` makes it unavailable."""

    def __init__(self, label: Label, passages: Sequence[Passage], why: str = "") -> None:
        self._label = label
        self._passages = tuple(passages)
        self._why = why

    @property
    def label(self) -> Label:
        return self._label

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        if self._why:
            raise CorpusUnavailable(self._why)
        return self._passages


def quiet(_event: Event) -> None:
    """A reporter that says nothing."""


def encoder() -> StaticEncoder:
    """The one that ships."""
    found = static_in()
    assert found is not None
    return found


def small_index() -> Index:
    """An index that keeps nothing."""
    return Index(quiet, None, encoder=encoder())


def places(folder: Path) -> SearchPaths:
    """All below one folder."""
    return SearchPaths(folder / "cache", folder / "data")


@contextmanager
def pool_at(
    folder: Path,
    labels: Sequence[Label] = (Label.DOCS, Label.INTENT),
    *,
    snapshot: Snapshot | None = None,
    embedder: Embedder | None = None,
    retriever: Retriever | None = None,
    sources: Sequence[CorpusSource] | None = None,
    precomputed: Path | None = None,
) -> Iterator[Pool]:
    """A pool over `FILES` with a store in a file, static vectors unless there is an `embedder`."""
    with open_store(f"sqlite://{folder / 'store.sqlite'}", quiet) as store:
        pool = make_pool(
            snapshot or MemorySnapshot(FILES),
            labels,
            places(folder),
            quiet,
            encoder=encoder(),
            embedder=embedder,
            store=store,
            retriever=retriever,
            precomputed=precomputed,
        )
        if sources is not None:
            from dataclasses import replace

            pool = replace(pool, sources=tuple(sources))
        yield pool
