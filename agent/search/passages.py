"""The values of a search: passages of every corpus, queries, results, and their text format.

The text of a passage has the lines NAME, TYPE, FILE and DESCRIPTION. The cosine also depends on
this format, so queries use it too: an identifier becomes a NAME, prose a DESCRIPTION. Word search
and static vectors ignore the labels.
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
    from agent.types import Reason
    from agent.types.protocols import Snapshot


class Label(enum.StrEnum):
    """The corpora, by the labels that results show: `[code]`, `[history]`, ..."""

    CODE = "code"
    HISTORY = "history"
    DOCS = "docs"
    INTENT = "intent"
    MEMORY = "memory"
    VECTORS = "vectors"


@dataclass(frozen=True, slots=True)
class Passage:
    """One searchable piece of text.

    `text` is searched and embedded. Lines are 1-based and inclusive, 0 without a location in the
    tree. `origin` is the commit of a past change, to which `path`, `start` and `end` refer, or the
    id of an accepted patch or a vector. `link` leads to the pull request of a past change. `also`
    lists the other places of the same text.
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
    link: str = ""
    also: tuple[Passage, ...] = ()

    @property
    def content(self) -> str:
        """Return the SHA-256 (hex) of the text. Passages with equal texts share one embedding."""
        return sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def place(self) -> str:
        """Return `path:start-end symbol @ origin` without the unknown parts; unique within a
        corpus.
        """
        lines = f":{self.start}-{self.end}" if self.start else ""
        symbol = f" {self.symbol}" if self.symbol else ""
        origin = f" @ {self.origin[:12]}" if self.origin else ""
        return f"{self.path}{lines}{symbol}{origin}".strip()


@dataclass(frozen=True, slots=True)
class PoolHit:
    """A passage that was found. `reasons` name the searches that found it and explain its rank.

    `score` in [0, 1] orders the hits of a pool. It comes from `rank`, the rank in the hit's own
    corpus (from 1; 0 for a name that was looked up). `relevance` is the probability that the
    passage is what the query describes. `similarity` is `score_of` the cosine with the query, 0 if
    unknown. `same`: the other places of its text, and near-duplicates of any corpus.
    """

    passage: Passage
    score: float
    reasons: tuple[Reason, ...] = ()
    same: tuple[Passage, ...] = ()
    similarity: float = 0.0
    rank: int = 0
    relevance: float = 1.0


@dataclass(frozen=True, slots=True)
class PoolResults:
    """Results in total order: `-score`, corpus, path, start, origin, title.

    `searched` counts the passages of each searched corpus. `notes` name what was left out and why:
    if a corpus fails, only its own results are missing.
    """

    hits: tuple[PoolHit, ...]
    searched: Mapping[Label, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class CorpusSource(Protocol):
    """Gives the passages of one corpus for one state of a repository.

    The same snapshot gives the same passages in the same order. A source may cache data between
    runs. For expected failures (no git, no model) it raises `CorpusUnavailable` with the reason.
    """

    @property
    def label(self) -> Label: ...

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return all passages.

        Raises CorpusUnavailable, and `agent.shared.workers.Cancelled` soon after `cancel` is set.
        """
        ...


class CorpusUnavailable(Exception):
    """A corpus cannot be searched here. The message gives the reason."""


QueryKind = Literal["identifier", "word", "prose"]

MAX_TEXT = 16_000
"""Maximum characters of a passage: more than embedding models read, and well below the payload
limit of 64 KiB.
"""

_LABEL = re.compile(r"^(?:NAME|TYPE|FILE|DESCRIPTION): ?", re.MULTILINE)
_NAME = re.compile(r"^NAME: ?(.*)$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|#|->)[A-Za-z_]\w*)*(?:\(\))?")
_SHAPED = re.compile(r"[^A-Za-z]|[a-z][A-Z]|[A-Z]{2}")
_SPLIT = re.compile(r"\.|::|#|->")


@dataclass(frozen=True, slots=True)
class Query:
    """A query and its kind.

    A word may be a name or a part of a language; `as_name` decides. `name` has dots between its
    parts and is "" for prose.
    """

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
    """Parse a query. A single name is an identifier (`a.b`, `A::b`, `f()`, `snake_case`,
    `camelCase`, `HTTP2`) or, without such a mark, a word.
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


def without_labels(text: str) -> str:
    """Return a text without its labels, whether or not it has the format."""
    return _LABEL.sub("", text)


def name_in(text: str) -> str:
    """Return the text of the NAME line; "" if there is none."""
    found = _NAME.search(text)
    return found.group(1) if found else ""
