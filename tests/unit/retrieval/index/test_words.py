from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.retrieval.index.words import (
    DEFINER,
    IMPORTER,
    KEYWORD,
    NUMBER,
    STOP_WORDS,
    TYPE_NAME,
    Terms,
    Vocabulary,
    WordScanner,
    term_hash,
)

SCANNER = WordScanner()
WORD = re.compile(rb"[0-9A-Za-z_\x80-\xff]+")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_words_are_where_a_regular_expression_finds_them(data: bytes) -> None:
    words = SCANNER.scan(data)
    spans = list(zip(words.starts.tolist(), words.ends.tolist(), strict=True))
    assert spans == [match.span() for match in WORD.finditer(data)]


def test_one_hash_a_word_wherever_it_stands() -> None:
    text = "alpha beta " * 30_000 + "\n" + "x" * 300_000 + "\nalpha\n"  # over several chunks
    words = SCANNER.scan(text.encode())
    alpha = words.hashes[0]
    assert alpha == SCANNER.scan(b"alpha").hashes[0] == words.hashes[-1]
    assert int((words.hashes == alpha).sum()) == 30_001


def test_different_words_differ() -> None:
    names = [f"{a}{b}{n}" for a in "abAB_" for b in "abAB_" for n in range(2_000)]
    words = SCANNER.scan(" ".join(names).encode())
    assert np.unique(words.hashes).size == len(names)


def test_terms_of_thousands_of_words_are_those_of_each() -> None:
    vocabulary, reference = Vocabulary(), Terms()
    for start in range(0, 60_000, 20_000):  # the table grows several times
        names = [f"getHTTPUser_{n} word{n}" for n in range(start, start + 20_000, 2)]
        data = " ".join([*names, *names[::7]]).encode()
        words = SCANNER.scan(data)
        numbers = vocabulary.numbers(data, words)
        np.testing.assert_array_equal(vocabulary.words[numbers], words.hashes)
        for spot in range(0, numbers.size, 997):
            word = data[words.starts[spot] : words.ends[spot]].decode()
            own = vocabulary.terms(numbers[spot : spot + 1])
            expected = [term_hash(term) for term in reference.of_word(word)]
            assert vocabulary.term_hashes[own].tolist() == expected


def test_flags_say_what_a_word_may_be() -> None:
    expected = {
        "HTTPError": TYPE_NAME, "FooBar": TYPE_NAME, "Foo": 0, "FOO_BAR": 0, "fooBar": 0,
        "12px": NUMBER, "if": KEYWORD, "def": DEFINER, "import": IMPORTER,
    }  # fmt: skip
    vocabulary = Vocabulary()
    for word, flag in expected.items():
        numbers = vocabulary.numbers(word.encode(), SCANNER.scan(word.encode()))
        assert vocabulary.flags[numbers].tolist() == [flag], word


# ----------------------------------------------------------------------------------------- terms


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


def test_counts_add_up_over_words_that_share_a_term() -> None:
    counts = Terms().count("parse parsing parse_url the")
    assert counts == {"pars": 3, "parse_url": 1, "url": 1}


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
