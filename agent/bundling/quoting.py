"""Texts as Python literals that a person can read."""

from __future__ import annotations

import ast
from collections.abc import Mapping


def as_literal(text: str) -> str:
    """A raw string in three quotes where that says the same, else one literal a line."""
    for quotes in ("'''", '"""'):
        literal = f"r{quotes}{text}{quotes}"
        if quotes not in text and _says(literal, text):
            return literal
    lines = text.splitlines(keepends=True) or [""]
    return "(\n" + "".join(f"{line!a}\n" for line in lines) + ")"


def as_dict(name: str, texts: Mapping[str, str]) -> str:
    """An assignment of a dict of texts, in their order."""
    entries = "".join(f"{key!r}: {as_literal(text)},\n" for key, text in texts.items())
    return f"{name} = {{\n{entries}}}\n"


def _says(literal: str, text: str) -> bool:
    try:
        return bool(ast.literal_eval(literal) == text)
    except (SyntaxError, ValueError):
        return False
