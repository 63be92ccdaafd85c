"""A small project with several places that an issue may mean, and the parts that plan over it."""

from __future__ import annotations

import asyncio

from agent.retrieval.index.index import Index
from agent.retrieval.ranking.ranker import RetrievalOptions
from agent.retrieval.ranking.retriever import HybridRetriever
from agent.search.plan_search import Grounded, Grounder, Intent, intent_of
from agent.search.plans import Planner
from agent.types import Problem, Ranking
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore
from tests.support.tokens import ApproximateCounter

FILES = {
    "shop/cart.py": """\
from shop.prices import price_of


class Cart:
    def add(self, item):
        self.items.append(item)

    def total(self, coupon):
        return sum(price_of(item) for item in self.items) - coupon.discount
""",
    "shop/prices.py": """\
def price_of(item):
    return item.price


def parse_price(text):
    return float(text.replace(",", "."))
""",
    "shop/mail.py": """\
def send_receipt(address, order):
    connect(address).send(render_receipt(order))


def render_receipt(order):
    return f"total {order.total}"
""",
    "shop/config.py": """\
def read_config(path):
    with open(path) as file:
        return file.read()
""",
}
PROBLEM = Problem(
    "Coupon discount is not in the total",
    "The cart total ignores the coupon discount. The receipt mail shows the wrong total too, "
    "because render_receipt prints the old one.\n\n"
    '  File "shop/cart.py", line 9, in total\nAttributeError: no discount on coupon\n',
)
OPTIONS = RetrievalOptions(embedding=False, static=False, learned=False)


def make_index() -> Index:
    """Nothing is kept, nothing runs beside."""
    return Index(ignore, None, 1)


def make_grounder(limit: int = 40) -> Grounder:
    """Over the project's files."""
    return Grounder(PROBLEM, MemorySnapshot(FILES), make_index(), limit)


def make_planner() -> Planner:
    """Best-first."""
    return Planner(make_index(), ApproximateCounter())


def rank(problem: Problem = PROBLEM) -> Ranking:
    """The issue's own ranking."""
    retriever = HybridRetriever(OPTIONS, embedder=None, index_path=None, reporter=ignore)
    return asyncio.run(retriever.rank(problem, MemorySnapshot(FILES)))


def found(query: str, *pieces: int, strength: float = 1.0, specificity: float = 1.0) -> Grounded:
    """An intent that has found these pieces."""
    return Grounded(intent(query), pieces, strength, specificity)


def intent(query: str) -> Intent:
    """An intent of a sentence."""
    return intent_of(query, "sentence")
