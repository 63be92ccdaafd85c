from __future__ import annotations

import pytest

from agent.retrieval.index.words import STOP_WORDS, Terms, term_hash


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


def test_hashes_are_the_same_on_every_machine() -> None:
    # Records of one version must fit queries of the next: a new value here needs a new FORMAT.
    assert term_hash("parse") == 6495692958074113047
