"""What retrieval finds: chunks, scores and the packed context; the issue and the files."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from agent.types.validation import KnownTests


class ChunkKind(enum.StrEnum):
    FUNCTION = "function"  # with decorators
    METHOD = "method"  # with decorators
    CLASS = "class"  # the header: decorators, bases, docstring, attributes; not its methods
    MODULE = "module"  # the rest of a file: imports, constants, top-level code
    WINDOW = "window"  # a run of lines of a file that no parser reads


DEFINITIONS: Final = frozenset({ChunkKind.FUNCTION, ChunkKind.METHOD, ChunkKind.CLASS})


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one file, the unit of retrieval.

    `text` is that of lines `start`..`end` without the `holes` of a class or module chunk.
    """

    path: str
    start: int
    end: int
    symbol: str  # qualified: "Class.method", "function", "" for module and window chunks
    kind: ChunkKind
    text: str
    blob: str
    language: str
    signature: str = ""  # decorators and the `def` or `class` lines
    holes: tuple[tuple[int, int], ...] = ()  # inclusive line ranges

    @property
    def id(self) -> str:
        """`path:L10-42`, with the symbol where there is one; unique within a snapshot."""
        symbol = f" {self.symbol}" if self.symbol else ""
        return f"{self.path}:L{self.start}-{self.end}{symbol}"

    @property
    def name(self) -> str:
        """The last part of the symbol."""
        return self.symbol.rpartition(".")[2]

    def numbers(self) -> list[int]:
        """Return the numbers of its lines without the holes."""
        holes = {n for first, last in self.holes for n in range(first, last + 1)}
        return [n for n in range(self.start, self.end + 1) if n not in holes]


@dataclass(frozen=True, slots=True)
class Reason:
    feature: str  # "lexical", "file", "cosine", "filename", "path", "symbol", "traceback", ...
    value: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class ScoredFile:
    path: str
    score: float
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    chunk: Chunk
    score: float
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """Chunks and files in total order: `-score, path, start`."""

    # Kept out of `repr`: `asyncio.run` builds that of its result, which takes 20 ms.
    chunks: tuple[ScoredChunk, ...] = field(repr=False)
    files: tuple[ScoredFile, ...] = field(repr=False)
    total_chunks: int
    notes: tuple[str, ...] = ()  # what was degraded
    degraded: str = ""  # why embeddings are missing, in words that do not depend on the problem


PieceForm = Literal["whole", "part", "signatures"]


@dataclass(frozen=True, slots=True)
class ContextPiece:
    """The part of one chunk, or of the rest of a file, that the model is shown.

    `tokens` is what it added to the rendered file, negative where it closes a gap.
    """

    path: str
    start: int
    end: int
    symbol: str
    form: PieceForm
    tokens: int
    score: float
    reasons: tuple[Reason, ...] = ()
    shown: tuple[tuple[int, int], ...] = ()
    rank: int | None = None  # of its chunk, from 1; None for signatures


CutBy = Literal["budget", "max-chunks", "overlap", "duplicate", "secret"]


@dataclass(frozen=True, slots=True)
class DroppedChunk:
    path: str
    start: int
    end: int
    symbol: str
    tokens: int
    score: float
    cut_by: CutBy
    rank: int | None = None  # from 1


@dataclass(frozen=True, slots=True)
class ContextBundle:
    pieces: tuple[ContextPiece, ...]
    text: str  # the rendered whole
    tokens: int  # the exact count of `text`, at most `budget`
    budget: int
    dropped: tuple[DroppedChunk, ...] = ()
    notes: tuple[str, ...] = ()
    reserve: int = 0  # tokens held back on top of `budget`
    likely_complete: float | None = None  # probability that all code to change is shown

    @property
    def shown_lines(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """The line ranges that the model is shown, by path."""
        shown: dict[str, list[tuple[int, int]]] = {}
        for piece in self.pieces:
            shown.setdefault(piece.path, []).extend(piece.shown)
        return shown


@dataclass(frozen=True, slots=True)
class Problem:
    """The issue to solve. `title` is its first non-empty line without Markdown heading marks."""

    title: str
    body: str
    source: str = "<text>"
    known: KnownTests | None = None  # the tests that decide, where the caller names them

    @property
    def text(self) -> str:
        """Title and body as one text."""
        return f"{self.title}\n\n{self.body}".strip() if self.body else self.title


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: str
    blob: str  # the git blob id (SHA-1, hex) of the content
    size: int
    language: str  # a name of agent.repository.languages, "text" when unknown
    executable: bool = False


SkipReason = Literal[
    "binary", "lfs-pointer", "submodule", "symlink", "too-large", "unreadable", "missing",
    "control-in-name", "name-not-utf-8", "name-outside",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SkippedFile:
    path: str
    reason: SkipReason


Dirty = Literal["include", "ignore", "refuse"]
"""What uncommitted changes are: a part of the snapshot, ignored, or an error."""
