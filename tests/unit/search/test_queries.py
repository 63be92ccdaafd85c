from __future__ import annotations

import threading

import pytest

from agent.search.passages import Query, described, name_in, read_query, without_labels
from agent.search.pool import find_exact, named_first
from agent.search.symbols import load_outline
from agent.types import ScoredChunk
from tests.support.chunks import make_chunk
from tests.support.corpora import FILES, small_index
from tests.support.fakes import MemorySnapshot


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Cart.total", "Cart.total"),
        ("Cart::total()", "Cart.total"),
        ("Cart#total", "Cart.total"),
        (" snake_case ", "snake_case"),
        ("two words", ""),
        ("f(x)", ""),
        ("a..b", ""),
        ("1st", ""),
        ("x" * 300, ""),
    ],
)
def test_identifiers_and_prose(text: str, name: str) -> None:
    query = read_query(text)
    assert (query.kind, query.name) == ("identifier" if name else "prose", name)


@pytest.mark.parametrize("text", ["cookies", "Total", "word"])
def test_a_word_is_a_name_only_where_it_is_defined(text: str) -> None:
    query = read_query(text)
    assert (query.kind, query.name) == ("word", text)
    assert query.as_name(defined=True).formatted == f"NAME: {text}"
    assert query.as_name(defined=False).formatted == f"DESCRIPTION: {text}"


@pytest.mark.parametrize("text", ["NO_COLOR", "fooBar", "HTTP", "x86", "a.b", "total()", "A::b"])
def test_a_shaped_name_is_an_identifier(text: str) -> None:
    assert read_query(text).kind == "identifier"


def test_a_query_is_put_into_the_form_of_the_documents() -> None:
    name, prose = read_query("Cart::total"), Query("how totals are made", "prose")
    assert name.formatted == "NAME: Cart.total"
    assert prose.formatted == "DESCRIPTION: how totals are made"


def test_labels_are_no_words() -> None:
    text = described("Cart.total", "method", "a.py", "Sums.\nNAME: is a word here")
    assert without_labels(text) == "Cart.total\nmethod\na.py\nSums.\nis a word here"
    assert name_in(text) == "Cart.total"
    assert name_in("plain") == ""


def places(text: str, files: dict[str, str] | None = None) -> list[str]:
    snapshot = MemorySnapshot(files or FILES)
    corpus = load_outline(snapshot, small_index(), threading.Event())
    return [hit.passage.place for hit in find_exact(read_query(text), corpus, snapshot)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("total", ["shop/cart.py:2-4 Cart.total"]),
        ("Cart.total", ["shop/cart.py:2-4 Cart.total"]),
        ("Cart::total()", ["shop/cart.py:2-4 Cart.total"]),
        ("shop.cart.Cart.total", ["shop/cart.py:2-4 Cart.total"]),
        ("cart.Cart", ["shop/cart.py:1-1 Cart"]),
        ("other.Cart", []),
        ("Jar.total", []),
        ("sendOrder", ["web/api.js:1-6 sendOrder"]),
        ("no_such_name", []),
        ("the total", []),
    ],
)
def test_names_are_looked_up(text: str, found: list[str]) -> None:
    assert places(text) == found


def test_the_whole_name_wins_over_its_tail() -> None:
    files = {
        "a.py": "class A:\n    def run(self):\n        pass\n",
        "b.py": "def run():\n    pass\n",
    }
    assert places("run", files) == ["b.py:1-2 run"]


def test_a_name_that_too_many_share_is_searched_for() -> None:
    text = "".join(f"class C{n}:\n    def get(self):\n        pass\n" for n in range(13))
    assert places("get", {"a.py": text}) == []


def test_the_definition_of_a_name_comes_before_code_that_uses_it() -> None:
    tree = MemorySnapshot({"a.py": "def shown(): strip(1)\n", "b.py": "def strip(): ...\n"})
    used = ScoredChunk(make_chunk(tree, "a.py", 1, 1, "shown"), 9.0)
    defined = ScoredChunk(make_chunk(tree, "b.py", 1, 1, "strip"), 1.0)
    ordered = named_first("strip", (used, defined))
    assert [hit.chunk.symbol for hit, _ in ordered] == ["strip", "shown"]
    assert ordered[0][1] == 1.0 > ordered[1][1]
    assert [hit for hit, _ in named_first("strip the tags", (used, defined))] == [used, defined]
