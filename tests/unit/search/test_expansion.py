from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import BudgetExceeded
from agent.llm import HttpChatModel
from agent.search.expansion import KeywordWriter, parse_keywords
from agent.search.passages import Label
from tests.support.corpora import pool_at
from tests.support.llm import endpoint, make_prompt, with_model
from tests.support.scripted_provider import ScriptedProvider


class Words:
    """A writer of keywords that gives one, or raises an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def keywords(self, query: str) -> tuple[str, ...]:
        if self.error is not None:
            raise self.error
        return ("warehouse",)


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
    with ScriptedProvider(["Pelican, warehouse"]) as provider:

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
        pool = replace(pool, keywords=Words(), vectors=None)  # type: ignore[arg-type]
        more = asyncio.run(pool.search("delivery"))
        broken = replace(pool, keywords=Words(BudgetExceeded("no call is left")))  # type: ignore[arg-type]
        failed = asyncio.run(broken.search("delivery"))
    assert plain.hits == failed.hits == ()
    assert failed.notes == ("searched without a model's keywords: no call is left",)
    assert more.hits[0].passage.symbol == "sendOrder"
    assert "with warehouse" in more.hits[0].reasons[0].note
