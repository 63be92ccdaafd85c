"""The values of the pool: passages of every corpus, and what was found among them."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.types import Reason


class Label(enum.StrEnum):
    """The corpora, as results name them: `[code]`, `[history]`, ..."""

    CODE = "code"
    HISTORY = "history"
    DOCS = "docs"
    INTENT = "intent"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Passage:
    """One piece of text that can be found.

    `text` is what is searched and embedded. Lines are 1-based and inclusive, 0 where the passage
    stands nowhere in the tree. Of the history and the memory `origin` is a commit id or what names
    an accepted patch, and `path`, `start`, `end` are as they were there.
    """

    corpus: Label
    title: str  # one line for people
    text: str
    path: str = ""
    start: int = 0
    end: int = 0
    symbol: str = ""
    language: str = "text"
    origin: str = ""
    tags: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """SHA-256 (hex) of the text: one embedding, however often it occurs."""
        return sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def place(self) -> str:
        """`path:start-end symbol @ origin`, what there is of it; unique within a corpus."""
        lines = f":{self.start}-{self.end}" if self.start else ""
        symbol = f" {self.symbol}" if self.symbol else ""
        origin = f" @ {self.origin[:12]}" if self.origin else ""
        return f"{self.path}{lines}{symbol}{origin}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A passage that was found. `reasons` say which search found it.

    `score` is its place in the pool, in [0, 1]; `similarity` is `agent.stores.base.score_of` its
    cosine with the query, which a threshold is compared with (0 where it was not computed: a name
    that was looked up, no vector). `same` are passages of any corpus that say nearly the same and
    were merged into this one. `rank` is its place in its own corpus (1 first), which the score
    comes from; 0 for a name that was looked up. `reasons` explain that place, not the score.
    """

    passage: Passage
    score: float
    reasons: tuple[Reason, ...] = ()
    same: tuple[Passage, ...] = ()
    similarity: float = 0.0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """Results in total order: `-score`, corpus, path, start, origin, title.

    `searched` counts the passages of each corpus that was searched; `notes` say what was left out
    and why (a corpus that fails costs its own results only).
    """

    hits: tuple[Finding, ...]
    searched: Mapping[Label, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class CorpusSource(Protocol):
    """Gives the passages of one corpus for one state of a repository.

    The same snapshot gives the same passages in the same order. What it keeps between runs is its
    own affair. Expected trouble (no git, no model) ends in `CorpusUnavailable`, with the reason.
    """

    @property
    def label(self) -> Label: ...

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """All of them.

        Raises CorpusUnavailable, and `agent.retrieval.pool.Cancelled` soon after `cancel` is set.
        """
        ...


class CorpusUnavailable(Exception):
    """A corpus cannot be searched here; the message says why, for a note."""
