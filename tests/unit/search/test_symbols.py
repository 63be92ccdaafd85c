from __future__ import annotations

import pytest

from agent.search.symbols import (
    Symbol,
    docstring_of,
    first_sentence,
    read_symbols,
    template_intents,
    words_of,
)
from agent.types import ChunkKind
from tests.support.corpora import FILES, small_index
from tests.support.fakes import MemorySnapshot


def test_symbols_of_every_language_of_the_index() -> None:
    files = {
        **FILES,
        "m.go": "package m\n\n// Run starts it.\nfunc (s *Server) Run() error {\n\treturn nil\n}\n",
        "m.rs": "/// Parses a line.\nfn parse(line: &str) -> u32 {\n    1\n}\n",
        "M.java": "class M {\n  /** Closes. */\n  void close() {\n  }\n}\n",
        "m.rb": "class M\n  # Opens.\n  def open(a)\n  end\nend\n",
        "m.c": "/* Frees. */\nint free_all(int a)\n{\n  return a;\n}\n",
    }  # fmt: skip
    found = {f"{s.path}:{s.name}": s for s in read_symbols(MemorySnapshot(files), small_index())}
    said = {name: symbol.docstring for name, symbol in found.items()}
    assert said["m.go:Server.Run"] == "Run starts it."
    assert said["m.rs:parse"] == "Parses a line."
    assert said["M.java:M.close"] == "Closes."
    assert said["m.rb:M.open"] == "Opens."
    assert said["m.c:free_all"] == "Frees."
    assert said["web/api.js:sendOrder"] == "Sends an order to the warehouse."
    expire = found["shop/cookies.py:CookieJar.expire"]
    assert (expire.kind, expire.parent, expire.leaf) == (ChunkKind.METHOD, "CookieJar", "expire")
    assert (expire.start, expire.end, expire.language) == (7, 12, "python")
    assert expire.signature.strip() == "def expire(self, now: float) -> int:"
    assert not any(symbol.path.startswith("tests/") for symbol in found.values())


def test_the_content_stays_when_a_symbol_moves() -> None:
    body = 'def f():\n    """Adds."""\n'
    (before,) = read_symbols(MemorySnapshot({"a.py": body}), small_index())
    (moved,) = read_symbols(MemorySnapshot({"b.py": "\n\n\nx = 1\n\n\n" + body}), small_index())
    (other,) = read_symbols(MemorySnapshot({"a.py": body.replace("Adds", "Sums")}), small_index())
    assert before.start != moved.start
    assert before.content == moved.content != other.content


def test_files_of_secrets_are_left_out() -> None:
    assert read_symbols(MemorySnapshot({".env": "def f():\n    pass\n"}), small_index()) == ()


@pytest.mark.parametrize(
    ("code", "signature", "language", "said"),
    [
        ('def f():\n    """Adds.\n\n    More.\n    """\n', "def f():", "python", "Adds.\n\nMore."),
        ("def f(): 'short'\n", "def f():", "python", "short"),
        ("def f():\n    # a note\n    r'''Raw.'''\n", "def f():", "python", "Raw."),
        ('def f():\n    x = """not one"""\n', "def f():", "python", ""),
        ('def f():\n    "broken\n', "def f():", "python", ""),
        ("// Add sums.\n// Twice.\nfunc Add() {}", "func Add()", "go", "Add sums.\nTwice."),
        ("/// Adds.\nfn add() {}", "fn add()", "rust", "Adds."),
        ("/**\n * Adds <b>two</b>.\n */\nint add() {}", "int add()", "java", "Adds two."),
        ("/// <summary>Adds.</summary>\nint Add() {}", "int Add()", "csharp", "Adds."),
        ("# Adds.\ndef add\nend", "def add", "ruby", "Adds."),
        ("def g(): pass", "def f():", "python", ""),
    ],
)
def test_docstrings_of_languages(code: str, signature: str, language: str, said: str) -> None:
    assert docstring_of(code, signature, language) == said


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("Adds two\nnumbers. Then more.", "Adds two numbers"),
        ("One paragraph\n\nand another", "One paragraph"),
        ("", ""),
    ],
)
def test_the_first_sentence_in_one_line(docstring: str, sentence: str) -> None:
    assert first_sentence(docstring) == sentence


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
