"""Qdrant in this process: what it is not made for is said once, in our words."""

from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from agent.search.stores import open_store
from agent.types.events import Event, Notice
from tests.support.stores import require

LIMIT = 3
"""In place of the library's 20,000, which take half a minute to write."""


@pytest.fixture(autouse=True)
def _library() -> None:
    require("qdrant_client")


def texts(said: list[Event]) -> list[str]:
    return [event.message for event in said if isinstance(event, Notice)]


def test_a_store_in_memory_says_that_nothing_is_kept() -> None:
    said: list[Event] = []
    with open_store("qdrant://:memory:", said.append):
        pass

    assert texts(said) == [
        "vector store qdrant://:memory: is in memory: nothing is kept when the command ends"
    ]


def test_a_store_without_a_place_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name a folder"):
        open_store("qdrant://", lambda _: None)
