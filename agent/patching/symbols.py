"""Finds a whole function by its qualified name, for edits that replace it and leave the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.patching.refusals import Miss
from agent.types import ChunkKind

if TYPE_CHECKING:
    from agent.retrieval.index import Piece

# Names that a refusal lists.
_SHOWN = 12

_FUNCTIONS = (ChunkKind.FUNCTION, ChunkKind.METHOD)

# A line of a comment in the languages of the outlines; `#[` and `#!` are attributes of Rust.
_COMMENT = re.compile(r"\s*(?://|/\*|\*|#(?![\[!]))")


@dataclass(frozen=True, slots=True)
class SymbolSite:
    """A function in a text: its lines (1-based, inclusive) and its offsets."""

    first: int
    last: int
    start: int
    end: int


def find_symbol(text: str, language: str, symbol: str) -> SymbolSite | Miss:
    """Return where a function stands. A name without its class is enough if only one fits."""
    from agent.retrieval.index import TreeSitterChunker  # loads numpy

    pieces = TreeSitterChunker().pieces(text, language)
    functions = [piece for piece in pieces if piece.kind in _FUNCTIONS]
    name = symbol.strip().replace("::", ".").removesuffix("()")
    found = [piece for piece in functions if piece.symbol == name]
    if not found and "." not in name:
        found = [piece for piece in functions if piece.symbol.endswith(f".{name}")]
    if len(found) == 1:
        return _site(text, found[0])
    if found:
        lines = ", ".join(f"{piece.symbol} at line {piece.start}" for piece in found[:_SHOWN])
        reason = f"{name} is defined {len(found)} times ({lines})"
        return Miss("ambiguous", reason, advice='use "search" and "replace" for it')
    if any(piece.symbol == name for piece in pieces):
        reason = f"{name} is no function, and only whole functions are replaced by their name"
        return Miss("no-match", reason, advice="name its methods, or use a search text")
    return Miss("no-match", f"there is no function {name} in the file{_known(functions)}")


def with_function(text: str, language: str, symbol: str, new: str) -> str | None:
    """Return the text with one function replaced; None if the function cannot be told."""
    site = find_symbol(text, language, symbol)
    if isinstance(site, Miss):
        return None
    return text[: site.start] + fitted(text[site.start : site.end], new) + text[site.end :]


def _known(functions: Sequence[Piece]) -> str:
    names = sorted({piece.symbol for piece in functions})
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; it has {', '.join(names[:_SHOWN])}{more}" if names else ""


def _site(text: str, piece: Piece) -> SymbolSite:
    lines, last = text.split("\n"), piece.end
    while last > piece.start and not lines[last - 1].strip():
        last -= 1  # blank lines below the function stay
    start = sum(len(line) + 1 for line in lines[: piece.start - 1])
    size = sum(len(line) + 1 for line in lines[piece.start - 1 : last])
    return SymbolSite(piece.start, last, start, min(start + size, len(text)))


def fitted(old: str, new: str) -> str:
    """Return the new text of a function with the indentation and the line end of the old one.

    A comment above the old function stays if the new text does not begin with one.
    """
    from agent.retrieval.index import split_lines

    lines = split_lines(new.strip("\n"))
    kept = "" if lines and _COMMENT.match(lines[0]) else _comments(old)
    wanted, given = _indent(split_lines(old[len(kept) :])), _indent(lines)
    if wanted != given and all(line.startswith(given) for line in lines if line.strip()):
        lines = [wanted + line[len(given) :] if line.strip() else line for line in lines]
    return kept + "\n".join(lines) + ("\n" if old.endswith("\n") else "")


def _comments(old: str) -> str:
    """Return the lines of comments that the outline counts to the function below them."""
    kept = []
    for line in old.splitlines(keepends=True):
        if not _COMMENT.match(line):
            break
        kept.append(line)
    return "".join(kept)


def _indent(lines: Sequence[str]) -> str:
    first = next((line for line in lines if line.strip()), "")
    return first[: len(first) - len(first.lstrip())]
