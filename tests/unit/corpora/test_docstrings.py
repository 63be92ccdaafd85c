from __future__ import annotations

import pytest

from agent.corpora.docstrings import docstring_of, first_sentence


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
