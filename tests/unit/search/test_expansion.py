from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from agent.errors import BudgetExceeded
from agent.retrieval.ranking import HybridRetriever, preset
from agent.search.expansion import ExpandingRetriever, FindWords, ProjectWordsFinder
from agent.search.passages import Label, Passage
from agent.search.word_index import WordIndexCache
from agent.types import Problem, Ranking
from agent.types.events import Event
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore

FILES = {
    "shop/cart.py": "def add(item):\n    return item\n",
    "shop/refund.py": "def refund(order):\n    return order\n",
}
SNAPSHOT = MemorySnapshot(FILES)
PROBLEM = Problem("money back is too much", "The customer gets the whole sum.")


def rank(find: FindWords, problem: Problem, said: list[Event]) -> Ranking:
    inner = HybridRetriever(preset("lexical"), embedder=None, index_path=None, reporter=ignore)
    retriever = ExpandingRetriever(inner, PROBLEM, find, said.append)
    return asyncio.run(retriever.rank(problem, SNAPSHOT))


async def refund(problem: Problem, snapshot: object) -> list[str]:
    return ["refund"]


async def nothing(problem: Problem, snapshot: object) -> list[str]:
    return []


async def broken(problem: Problem, snapshot: object) -> list[str]:
    raise BudgetExceeded("no call is left")


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


@dataclass(frozen=True)
class Shelf:
    passages_: tuple[Passage, ...]
    label: Label = Label.INTENT

    def passages(self, snapshot: object, cancel: threading.Event) -> Sequence[Passage]:
        return self.passages_


def test_a_project_gives_the_words_that_go_with_those_of_the_title() -> None:
    texts = ["money voucher refund"] * 4 + [f"other text {n} about {n * 7}" for n in range(40)]
    passages = tuple(Passage(Label.INTENT, f"p{n}", text) for n, text in enumerate(texts))
    finder = ProjectWordsFinder(Shelf(passages), WordIndexCache(None, ignore))
    words = asyncio.run(finder(PROBLEM, SNAPSHOT))
    assert sorted(words) == ["refund", "voucher"]
    assert asyncio.run(finder(Problem("nothing of it", ""), SNAPSHOT)) == []
