"""The issue, and the files of a repository."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent.types.validation import KnownTests


@dataclass(frozen=True, slots=True)
class Problem:
    """The issue to solve. `title` is its first non-empty line without Markdown heading marks.

    `known`: the tests that decide, where the caller names them.
    """

    title: str
    body: str
    source: str = "<text>"
    known: KnownTests | None = None

    @property
    def text(self) -> str:
        """Title and body as one text, the form in which a model is shown the problem."""
        return f"{self.title}\n\n{self.body}".strip() if self.body else self.title


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One usable text file of a snapshot. `blob` is the git blob id (SHA-1, hex) of its content."""

    path: str
    blob: str
    size: int
    language: str  # a name of agent.repository.languages, "text" when unknown
    executable: bool = False


SkipReason = Literal[
    "binary", "lfs-pointer", "submodule", "symlink", "too-large", "unreadable", "missing",
    "control-in-name", "name-not-utf-8", "name-outside",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A tracked path that retrieval does not see, and why."""

    path: str
    reason: SkipReason


Dirty = Literal["include", "ignore", "refuse"]
"""What uncommitted changes are: a part of the snapshot, ignored, or an error."""
