from __future__ import annotations

import pytest

from agent.search.symbols import Symbol, template_intents, words_of
from agent.types import ChunkKind


def symbol(**changes: object) -> Symbol:
    values: dict[str, object] = {
        "path": "shop/cookies.py",
        "name": "CookieJar.expire_old",
        "kind": ChunkKind.METHOD,
        "signature": "    def expire_old(self, now: float, *, hard: bool = False) -> list[str]:",
        "docstring": "Drop cookies that are out of date.\n\nRaises ValueError for the past.",
        "start": 3,
        "end": 9,
        "language": "python",
        "code": "",
    }
    return Symbol(**{**values, **changes})  # type: ignore[arg-type]


def test_five_sentences_in_the_first_person() -> None:
    assert template_intents(symbol()) == (
        "I want to: Drop cookies that are out of date",
        "I want to expire old of cookie jar",
        "I have now, hard and want to expire old",
        "I need the list[str] that expire old gives",
        "I get ValueError when I expire old",
    )


def test_what_is_not_known_is_left_out() -> None:
    bare = symbol(signature="def expire_old(self):", docstring="", name="expire_old")
    assert template_intents(bare) == ("I want to expire old of cookies",)


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("Cart.__len__", ChunkKind.METHOD, "I want to count a cart"),
        ("HTTPServer", ChunkKind.CLASS, "I want to use a http server of cookies"),
        ("Console.out", ChunkKind.METHOD, "I want to use out of console"),
        ("Style.__ne__", ChunkKind.METHOD, "I want to compare a style"),
        ("Emoji.__repr__", ChunkKind.METHOD, "I want to show an emoji"),
        ("Emoji", ChunkKind.CLASS, "I want to use an emoji of cookies"),
        ("größe", ChunkKind.FUNCTION, "I want to use größe of cookies"),
        ("_", ChunkKind.FUNCTION, "I want to use _ of cookies"),
    ],
)
def test_names_of_all_sorts(name: str, kind: ChunkKind, sentence: str) -> None:
    made = template_intents(symbol(name=name, kind=kind, signature="", docstring=""))
    assert made == (sentence,)


def test_parameters_of_other_languages() -> None:
    go = symbol(signature="func (s *Server) Run(port int, hostName string) error", docstring="")
    java = symbol(signature="void send(final Order order, String address)", docstring="")
    assert any("I have order, address and" in intent for intent in template_intents(java))
    assert template_intents(go)


def test_a_long_docstring_is_cut() -> None:
    made = template_intents(symbol(docstring="word " * 500))
    assert max(map(len, made)) <= 200


@pytest.mark.parametrize(
    ("name", "words"),
    [("parse_cookieHeader2", "parse cookie header 2"), ("HTTPError", "http error"), ("__x__", "x")],
)
def test_words_of_identifiers(name: str, words: str) -> None:
    assert words_of(name) == words
