from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.retrieval.index.words import STOP_WORDS, Terms, name_hash, term_hash


def test_names_have_different_hashes() -> None:
    names = [f"{a}{b}{n}" for a in "abAB_" for b in "abAB_" for n in range(200)]
    assert len({name_hash(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("word", "terms"),
    [
        ("parse", ("pars",)),
        ("parsing", ("pars",)),
        ("HTTPServerError", ("httpservererror", "http", "server", "error")),
        ("getHTTPResponse", ("gethttpresponse", "get", "http", "respons")),
        ("read_timeout", ("read_timeout", "read", "timeout")),
        ("_private", ("privat",)),
        ("__init__", ("init",)),
        ("utf8", ("utf8", "utf")),
        ("404", ("404",)),
        ("20240101123456", ()),
        ("the", ()),
        ("x", ()),
        ("is_not", ("is_not",)),
        ("café", ("café",)),
        ("überCamel", ("übercamel", "über", "camel")),
        ("日本語", ("日本語",)),
        ("a" * 81, ()),
    ],
)
def test_terms_of_a_word(word: str, terms: tuple[str, ...]) -> None:
    assert Terms().of_word(word) == tuple(t for t in terms if t not in STOP_WORDS)


@given(st.text(max_size=200))
def test_hashes_count_the_same_terms(text: str) -> None:
    terms = Terms()
    expected: dict[int, int] = {}
    for term, count in terms.count(text).items():
        expected[term_hash(term)] = expected.get(term_hash(term), 0) + count
    assert terms.count_hashes(text) == expected


def test_hashes_are_the_same_on_every_machine() -> None:
    # Records of one version must fit queries of the next: a new value here needs a new FORMAT.
    assert term_hash("parse") == 6495692958074113047
