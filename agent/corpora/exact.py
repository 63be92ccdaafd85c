"""The short cut: a query that is the name of something is answered by looking it up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.corpora.formats import Query
from agent.corpora.passages import Finding, Label, Passage
from agent.retrieval.chunking import split_lines
from agent.retrieval.identifiers import without_suffix
from agent.retrieval.texts import document_text
from agent.types import Chunk, Reason

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.retrieval.corpus import Corpus

MAX_EXACT = 12
"""A name that more symbols share says too little: it is searched for as words are."""

_LEAST_LETTERS = 3  # of a name without dots


def find_exact(query: Query, corpus: Corpus, snapshot: Snapshot) -> tuple[Finding, ...]:
    """The symbols of that name by path and line; () where the query names none, or too many."""
    if query.kind != "identifier" or len(query.name) < _LEAST_LETTERS:
        return ()
    parts = tuple(query.name.split("."))
    leaf = parts[-1]
    named = [n for n, symbol in enumerate(corpus.symbols) if symbol.rpartition(".")[2] == leaf]
    numbers = [n for n in named if _means(parts, corpus.symbols[n], corpus.path_of(n))]
    whole = [n for n in numbers if corpus.symbols[n] == query.name]
    chosen = whole or numbers
    if not chosen or len(chosen) > MAX_EXACT:
        return ()
    reasons = (Reason("exact", 1.0, f"{query.name} is its name"),)
    return tuple(Finding(code_passage(_chunk(corpus, n, snapshot)), 1.0, reasons) for n in chosen)


def code_passage(chunk: Chunk) -> Passage:
    """A chunk as a passage of the corpus `code`."""
    return Passage(
        corpus=Label.CODE,
        title=chunk.symbol or chunk.kind.value,
        text=document_text(chunk),
        path=chunk.path,
        start=chunk.start,
        end=chunk.end,
        symbol=chunk.symbol,
        language=chunk.language,
        tags=(chunk.kind.value,),
    )


def _means(parts: Sequence[str], symbol: str, path: str) -> bool:
    """Whether `pkg.mod.Class.method` or a tail of it names this symbol of this file."""
    own = tuple(symbol.split("."))
    common = min(len(own), len(parts))
    if own[-common:] != tuple(parts[-common:]):
        return False
    module = tuple(parts[: len(parts) - common])
    folders = tuple(without_suffix(path).removesuffix("/__init__").split("/"))
    return not module or folders[-len(module) :] == module


def _chunk(corpus: Corpus, number: int, snapshot: Snapshot) -> Chunk:
    file = corpus.files[int(corpus.piece_file[number])]
    return corpus.pieces[number].chunk(file, split_lines(snapshot.text(file.path)))
