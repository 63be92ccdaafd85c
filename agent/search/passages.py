"""The values of a search: passages of every corpus, queries, results, and their text format.

A text has the lines NAME, TYPE, FILE and DESCRIPTION. Queries use this format too, because the
cosine depends on it; word search and static vectors ignore the labels.
"""

from __future__ import annotations

import enum
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from agent.types import Chunk, Reason
    from agent.types.protocols import Snapshot


class Label(enum.StrEnum):
    """The corpora, by the labels that results show."""

    CODE = "code"
    HISTORY = "history"
    DOCS = "docs"
    INTENT = "intent"
    MEMORY = "memory"
    VECTORS = "vectors"


@dataclass(frozen=True, slots=True)
class Passage:
    """One text to search. Lines are 1-based and inclusive, 0 without a location in the tree.

    `origin`: the commit of a past change, to which `path` and the lines refer, or the id of an
    accepted patch or a vector. `also`: other places of the same text.
    """

    corpus: Label
    title: str  # one line for display
    text: str
    path: str = ""
    start: int = 0
    end: int = 0
    symbol: str = ""
    language: str = "text"
    origin: str = ""
    tags: tuple[str, ...] = ()
    also: tuple[Passage, ...] = ()

    @property
    def content(self) -> str:
        """Return the SHA-256 (hex) of the text."""
        return sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def place(self) -> str:
        """Return `path:start-end symbol @ origin` without the unknown parts."""
        lines = f":{self.start}-{self.end}" if self.start else ""
        symbol = f" {self.symbol}" if self.symbol else ""
        origin = f" @ {self.origin[:12]}" if self.origin else ""
        return f"{self.path}{lines}{symbol}{origin}".strip()


@dataclass(frozen=True, slots=True)
class PoolHit:
    """A passage that matches. `score` in [0, 1] orders hits of all corpora; `reasons` explain it.

    `value`: the score of its own corpus, of the kind `score_name`. `rank`: in its own corpus, from
    1; 0 for a name that was looked up. `relevance`: probability that a passage is what the query
    describes. `similarity`: its cosine with the query, 0 if unknown. `same`: other places of its
    text, and near-duplicates of any corpus.
    """

    passage: Passage
    score: float
    reasons: tuple[Reason, ...] = ()
    same: tuple[Passage, ...] = ()
    similarity: float = 0.0
    rank: int = 0
    relevance: float = 1.0
    value: float = 1.0
    score_name: str = "name"


@dataclass(frozen=True, slots=True)
class PoolResults:
    """Hits in total order, the number of passages of each corpus, and what was left out."""

    hits: tuple[PoolHit, ...]
    searched: Mapping[Label, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class CorpusSource(Protocol):
    """Gives the passages of one corpus, in the same order for the same snapshot."""

    @property
    def label(self) -> Label: ...

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return all passages. Raises CorpusUnavailable, and Cancelled once `cancel` is set."""
        ...


class CorpusUnavailable(Exception):
    """A corpus cannot be searched here. The message gives the reason."""


QueryKind = Literal["identifier", "word", "prose"]

MAX_TEXT = 16_000
"""Maximum characters of a passage: more than embedding models read."""

_LABEL = re.compile(r"^(?:NAME|TYPE|FILE|DESCRIPTION): ?", re.MULTILINE)
_NAME = re.compile(r"^NAME: ?(.*)$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|#|->)[A-Za-z_]\w*)*(?:\(\))?")
_SHAPED = re.compile(r"[^A-Za-z]|[a-z][A-Z]|[A-Z]{2}")
_SPLIT = re.compile(r"\.|::|#|->")


@dataclass(frozen=True, slots=True)
class Query:
    """A query. `name` has dots between its parts and is "" for prose; a word may be a name."""

    text: str
    kind: QueryKind
    name: str = ""

    def as_name(self, *, defined: bool) -> Query:
        """Return a word as an identifier if the project defines it, else as prose."""
        return Query(self.text, "identifier", self.name) if defined else Query(self.text, "prose")

    @property
    def formatted(self) -> str:
        """The query in the text format of the passages."""
        return f"NAME: {self.name}" if self.kind == "identifier" else f"DESCRIPTION: {self.text}"


def read_query(text: str) -> Query:
    """Parse a query. A name is an identifier (`a.b`, `A::b`, `f()`, `snake_case`, `HTTP2`) or,
    without such a mark, a word.
    """
    stripped = text.strip()
    if len(stripped) <= 200 and _IDENTIFIER.fullmatch(stripped):
        name = ".".join(_SPLIT.split(stripped.removesuffix("()")))
        return Query(stripped, "identifier" if _SHAPED.search(stripped) else "word", name)
    return Query(stripped, "prose")


def described(name: str, kind: str, path: str, description: str) -> str:
    """Return a document in the text format."""
    lines = [f"NAME: {name}", f"TYPE: {kind}", f"FILE: {path}", f"DESCRIPTION: {description}"]
    return "\n".join(lines)[:MAX_TEXT]


def passage_about(
    chunk: Chunk, corpus: Label, title: str, description: str, tag: str, origin: str = ""
) -> Passage:
    """Return a passage about a chunk, in the text format."""
    name = chunk.symbol
    text = described(name, chunk.kind.value, chunk.path, description)
    place = (chunk.path, chunk.start, chunk.end, name, chunk.language)
    return Passage(corpus, title, text, *place, origin, (tag,))


def without_labels(text: str) -> str:
    """Return a text without its labels, if it has any."""
    return _LABEL.sub("", text)


def name_in(text: str) -> str:
    """Return the text of the NAME line; "" if there is none."""
    found = _NAME.search(text)
    return found.group(1) if found else ""
