"""The functions and classes of a project, with their docstrings.

The cached index of chunks provides kinds, names, signatures and lines. Only docstrings are read
from the files.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from agent.retrieval.index import split_lines, target_files
from agent.shared.secrets import is_secret_path
from agent.shared.threads import Cancelled
from agent.types import DEFINITIONS, ChunkKind

if TYPE_CHECKING:
    from agent.retrieval.index import Corpus, Index
    from agent.types import SourceFile
    from agent.types.protocols import Snapshot

MAX_CHARS = 4_000
"""Maximum characters of a docstring. The rest is usually an example or a table."""

_OPENING = re.compile(r"(?>(?:\s|#[^\n]*+\n)*)[rRuU]?(\"\"\"|'''|\"|')")
_MARK = re.compile(r"^\s*+(?:/{2,}+!?|/\*++!?|\*++/?|#++|-{2,}+|;++)[ \t]?")
_CLOSING_MARK = re.compile(r"\s*+\*++/\s*+$")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,80}/?>")
_TAGGED = frozenset({"csharp", "java", "javascript", "typescript", "tsx", "php"})


def docstring_of(code: str, signature: str, language: str) -> str:
    """Return the docstring or comment of a definition without its marks; "" if there is none.

    `code` is the text of a chunk, including the `signature` and the comment above it.
    """
    at = code.find(signature) if signature else -1
    if at < 0:
        return ""
    if language == "python":
        return _quoted(code[at + len(signature) :])
    text = _uncommented(code[:at])
    return _TAG.sub("", text).strip()[:MAX_CHARS] if language in _TAGGED else text


def first_sentence(docstring: str) -> str:
    """Return the first sentence of the first paragraph in one line, without the full stop."""
    paragraph = " ".join(docstring.strip().split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0].rstrip(".!? ")


def _quoted(body: str) -> str:
    found = _OPENING.match(body)
    if found is None:
        return ""
    quote = found.group(1)
    end = body.find(quote, found.end())
    text = body[found.end() : end if end >= 0 else None]
    if len(quote) == 1 and "\n" in text:
        return ""
    return _dedented(text)


def _dedented(text: str) -> str:
    first, *rest = text.strip()[:MAX_CHARS].split("\n")
    depth = min((len(s) - len(s.lstrip()) for s in rest if s.strip()), default=0)
    return "\n".join([first.strip(), *(line[depth:].rstrip() for line in rest)]).strip()


def _uncommented(lead: str) -> str:
    lines = [_CLOSING_MARK.sub("", _MARK.sub("", line)).rstrip() for line in lead.split("\n")]
    return "\n".join(lines).strip()[:MAX_CHARS]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function, method or class. Lines are 1-based and inclusive; `code` is its chunk's text.

    `name` is qualified; `parent` is the enclosing symbol, "" at the top of a file.
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
        """Return `Class` for `Class.method`."""
        return self.name.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        """Return `method` for `Class.method`."""
        return self.name.rpartition(".")[2]

    @property
    def content(self) -> str:
        """Return the SHA-256 (hex) of everything except the location: a moved symbol keeps it."""
        parts = (self.kind.value, self.name, self.signature, self.docstring, self.code)
        data = "\0".join(parts).encode("utf-8", "surrogatepass")
        return sha256(data).hexdigest()


def read_symbols(
    snapshot: Snapshot, index: Index, cancel: threading.Event | None = None
) -> tuple[Symbol, ...]:
    """Return all symbols outside tests, vendored and generated code, by path and line.

    Raises Cancelled soon after `cancel` is set.
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
    """Load the pieces of the project's own files without their terms. Raises Cancelled."""
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
        if piece.symbol and piece.kind in DEFINITIONS:
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
