"""Symbols of a project: what its index holds of functions and classes, with their docstrings.

Kinds, names, signatures and lines come from the index of chunks, which is cached by blob; only
docstrings are read from the files anew.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from agent.corpora.docstrings import docstring_of
from agent.retrieval.candidates import target_files
from agent.retrieval.chunking import split_lines
from agent.retrieval.pool import Cancelled
from agent.secrets.files import is_secret_path
from agent.types import ChunkKind

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.retrieval.corpus import Corpus
    from agent.retrieval.index import Index
    from agent.types import SourceFile

_KINDS = frozenset({ChunkKind.FUNCTION, ChunkKind.METHOD, ChunkKind.CLASS})


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function, method or class. Lines are 1-based and inclusive; `code` is its chunk's text.

    `name` is qualified; `parent` is the symbol that it stands in, "" at the top of a file.
    """

    path: str
    name: str
    kind: ChunkKind
    signature: str
    docstring: str
    start: int
    end: int
    language: str
    code: str

    @property
    def parent(self) -> str:
        """`Class` of `Class.method`."""
        return self.name.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        """`method` of `Class.method`."""
        return self.name.rpartition(".")[2]

    @property
    def content(self) -> str:
        """SHA-256 (hex) of what is said of it: not of its place, so that it may move."""
        parts = (self.kind.value, self.name, self.signature, self.docstring, self.code)
        data = "\0".join(parts).encode("utf-8", "surrogatepass")
        return sha256(data).hexdigest()


def read_symbols(
    snapshot: Snapshot, index: Index, cancel: threading.Event | None = None
) -> tuple[Symbol, ...]:
    """All symbols outside tests, vendored and generated code, by path and line.

    Raises `pool.Cancelled` soon after `cancel` is set.
    """
    stop = cancel or threading.Event()
    corpus = load_outline(snapshot, index, stop)
    found: list[Symbol] = []
    for number, file in enumerate(corpus.files):
        if stop.is_set():
            raise Cancelled
        found.extend(_symbols_of(corpus, number, file, snapshot))
    return tuple(found)


def load_outline(snapshot: Snapshot, index: Index, cancel: threading.Event) -> Corpus:
    """Pieces of the project's own files, without their words. Raises `pool.Cancelled`."""
    import numpy as np

    return index.load(snapshot, target_files(snapshot), np.empty(0, dtype=np.uint64), cancel)


def _symbols_of(
    corpus: Corpus, number: int, file: SourceFile, snapshot: Snapshot
) -> Iterator[Symbol]:
    first, end = corpus.first_piece[number], corpus.first_piece[number + 1]
    if is_secret_path(file.path) or not any(corpus.symbols[first:end]):
        return
    lines = split_lines(snapshot.text(file.path))
    for _, piece in corpus.pieces_of(number):
        if piece.symbol and piece.kind in _KINDS:
            code = piece.text(lines)
            yield Symbol(
                path=file.path,
                name=piece.symbol,
                kind=piece.kind,
                signature=piece.signature,
                docstring=docstring_of(code, piece.signature, file.language),
                start=piece.start,
                end=piece.end,
                language=file.language,
                code=code,
            )
