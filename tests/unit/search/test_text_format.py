from __future__ import annotations

import pytest

from agent.search.passages import Query, described, name_in, read_query, without_labels


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
