"""Closes every cache that a test opened: Python 3.13 warns of databases that are left open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.retrieval.embedding import VectorCache


@pytest.fixture(autouse=True)
def caches_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened: list[VectorCache] = []
    construct = VectorCache.__init__

    def remember(cache: VectorCache, *arguments: Any, **named: Any) -> None:
        construct(cache, *arguments, **named)
        opened.append(cache)

    monkeypatch.setattr(VectorCache, "__init__", remember)
    yield
    for cache in opened:
        cache.close()
