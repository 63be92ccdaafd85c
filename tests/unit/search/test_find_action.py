"""Searches by intent in the iterative mode."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from agent.errors import ProviderUnreachable
from agent.iterative import Find, in_words, read_actions
from agent.retrieval.ranking.retriever import HybridRetriever
from agent.search.plans import FindAction, read_keywords
from agent.types import Completion, ParseFailure, Usage
from tests.conftest import ROOT
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore
from tests.support.planning import FILES, OPTIONS
from tests.support.scripted_model import Reply, ScriptedChatModel
from tests.support.tokens import ApproximateCounter


def find(*intents: str, replies: tuple[Reply, ...] = (), keywords: bool = False) -> str:
    action = FindAction(
        HybridRetriever(OPTIONS, embedder=None, index_path=None, reporter=ignore),
        ScriptedChatModel(replies),
        ApproximateCounter(),
    )
    return asyncio.run(action.find(intents, MemorySnapshot(FILES), keywords=keywords))


def test_each_intent_names_its_places_and_no_symbol_twice() -> None:
    text = find("Find what parses a price", "Find what renders the receipt")
    first, second = text.split("\n\n")
    assert first.startswith("Find what parses a price\nshop/prices.py:L5-6 parse_price")
    assert "render_receipt" in text
    places = [line for line in text.split("\n") if ":L" in line]
    assert len(places) == len(set(places))
    assert max(len(part.split("\n")) - 1 for part in (first, second)) <= 6


def test_keywords_of_the_model_join_the_query() -> None:
    reply = json.dumps({"keywords": [["read_config", "path"]]})
    text = find("Find the settings", replies=(reply,), keywords=True)
    assert text.split("\n")[:2] == [
        "Find the settings [read_config, path]",
        "shop/config.py:L1-3 read_config",
    ]


@pytest.mark.parametrize(
    ("reply", "why"), [("?", "held none"), (ProviderUnreachable("it is down"), "it is down")]
)
def test_without_keywords_the_intent_is_looked_for_as_it_is(reply: Reply, why: str) -> None:
    text = find("Find read_config", replies=(reply,), keywords=True)
    assert why in text.split("\n")[0]
    assert "read_config" in text


def test_keywords_are_read_from_any_reply() -> None:
    assert read_keywords('x {"keywords": [["a"], [], ["b", "c"]]}') == {0: ("a",), 2: ("b", "c")}
    assert read_keywords('{"keywords": "a"}') == {}


def test_the_action_is_read_and_bounded() -> None:
    def read(**fields: object) -> object:
        (asked,) = read_actions(Completion(json.dumps(fields), "m", "stop", Usage(), 0.0)).asked
        return asked.read

    assert read(action="find", intents=["x"]) == Find(action="find", intents=["x"])
    assert isinstance(read(action="find", intents=[]), ParseFailure)
    assert isinstance(read(action="find", intents=["x"] * 7), ParseFailure)


def test_the_action_is_offered_only_where_it_is_switched_on() -> None:
    off = in_words(find=False, run=False, lines=9)
    on = in_words(find=True, run=False, lines=9)
    assert '"find"' not in off
    offered = [line for line in on.split("\n") if line not in off.split("\n")]
    assert len(offered) == 2
    assert '"action": "find"' in offered[0]


_USE = r"""
import asyncio, sys
from agent.wiring.composition import make_finder
from agent.wiring.retrieval import make_retriever
from agent.settings import Settings
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore
from tests.support.scripted_model import ScriptedChatModel

settings = Settings()
finder = make_finder(make_retriever(settings, None, ignore), ScriptedChatModel(()))
before = "agent.search" in sys.modules
snapshot = MemorySnapshot({"prices.py": "def parse_price(text):\n    return int(text)\n"})
text = asyncio.run(finder.find(["Find what parses a price"], snapshot, keywords=False))
print(before, "agent.search" in sys.modules, "parse_price" in text)
"""


def test_the_action_of_a_run_is_imported_when_it_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _USE], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["False", "True", "True"], done.stderr
