from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import BudgetExceeded
from agent.llm import HttpChatModel
from agent.retrieval.ranking import HybridRetriever, preset
from agent.search.expansion import ExpandingRetriever, KeywordWriter, parse_keywords
from agent.search.passages import Label
from agent.types import Problem, Ranking
from agent.types.events import Event
from tests.support.behaviours import Good
from tests.support.corpora import pool_at
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore
from tests.support.llm import endpoint, make_prompt, with_model
from tests.support.scripted_provider import ScriptedProvider

FILES = {
    "shop/cart.py": "def add(item):\n    return item\n",
    "shop/refund.py": "def refund(order):\n    return order\n",
}
SNAPSHOT = MemorySnapshot(FILES)
PROBLEM = Problem("money back is too much", "The customer gets the whole sum.")


class Words:
    """A writer of keywords that gives `words`, or raises an error."""

    def __init__(self, *words: str, error: Exception | None = None) -> None:
        self.words = words
        self.error = error

    async def keywords(self, query: str) -> tuple[str, ...]:
        if self.error is not None:
            raise self.error
        return self.words


def rank(writer: Words, problem: Problem, said: list[Event]) -> Ranking:
    inner = HybridRetriever(preset("lexical"), embedder=None, index_path=None, reporter=ignore)
    retriever = ExpandingRetriever(inner, PROBLEM, writer, said.append)  # type: ignore[arg-type]
    return asyncio.run(retriever.rank(problem, SNAPSHOT))


nothing, refund = Words(), Words("refund")
broken = Words(error=BudgetExceeded("no call is left"))


def test_added_words_find_what_the_problem_calls_otherwise() -> None:
    plain, found = rank(nothing, PROBLEM, []), rank(refund, PROBLEM, [])
    assert found.files[0].path == "shop/refund.py"
    assert found.notes == ("ranked with the words refund too",)
    score = {name: r.files[0].score for name, r in (("plain", plain), ("found", found))}
    assert score["found"] > score["plain"]


def test_only_the_problem_of_the_run_gets_words() -> None:
    other = Problem("the cart", "loses items")
    assert rank(refund, other, []) == rank(nothing, other, [])


def test_ranking_goes_on_where_words_cannot_be_found() -> None:
    said: list[Event] = []
    plain, failed = rank(nothing, PROBLEM, []), rank(broken, PROBLEM, said)
    assert failed.chunks == plain.chunks
    assert [event.message for event in said] == [  # type: ignore[union-attr]
        "ranked without further words: no call is left"
    ]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("CookieJar, expire_old, jar", ("CookieJar", "expire_old", "jar")),
        (json.dumps({"keywords": ["CookieJar", "jar"]}), ("CookieJar", "jar")),
        ("- CookieJar\n- CookieJar\n- x", ("CookieJar",)),
        ("", ()),
        (" ".join(f"word{n}" for n in range(50)), tuple(f"word{n}" for n in range(12))),
    ],
)
def test_words_of_a_reply(reply: str, words: tuple[str, ...]) -> None:
    assert parse_keywords(reply) == words


def test_a_query_is_asked_once_and_kept(tmp_path: Path) -> None:
    with ScriptedProvider([Good("Pelican, warehouse")]) as provider:

        async def use(model: HttpChatModel) -> list[tuple[str, ...]]:
            path = tmp_path / "keywords.jsonl"
            first = KeywordWriter(path, model, make_prompt)
            second = KeywordWriter(path, model, make_prompt)
            return [await writer.keywords("a query") for writer in (first, first, second)]

        said = with_model(endpoint(provider.base_url, model=provider.model), use)
        assert len(provider.chats) == 1
    assert said == [("Pelican", "warehouse")] * 3


def test_keywords_find_what_the_query_does_not_say(tmp_path: Path) -> None:
    with pool_at(tmp_path, [Label.DOCS]) as pool:
        plain = asyncio.run(replace(pool, vectors=None).search("delivery"))
        pool = replace(pool, keywords=Words("warehouse"), vectors=None)  # type: ignore[arg-type]
        more = asyncio.run(pool.search("delivery"))
    assert plain.hits == ()
    assert more.hits[0].passage.symbol == "sendOrder"
    assert "with warehouse" in more.hits[0].reasons[0].note
