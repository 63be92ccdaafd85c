from __future__ import annotations

import pytest

from agent.search.symbols import docstring_of, first_sentence, read_symbols
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
