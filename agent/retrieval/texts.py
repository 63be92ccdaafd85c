"""The texts that are embedded: documents and queries in one format, as cosine demands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.retrieval.identifiers import without_suffix
from agent.retrieval.mentions import Mentions, Place
from agent.secrets.files import is_secret_path

if TYPE_CHECKING:
    from agent.types import Chunk, Problem

_MAX_PATHS = 2
_MAX_NAMES = 4
MAX_CHARS = 20_000
"""Far more than any embedding model reads; bounds what is sent."""


def document_text(chunk: Chunk) -> str:
    """Path, qualified name, code: the order of importance, because models cut at the end.

    Of files that hold secrets the path alone: the text may go to a server.
    """
    parts = (chunk.path, chunk.symbol, "" if is_secret_path(chunk.path) else chunk.text)
    return "\n".join(part for part in parts if part)[:MAX_CHARS]


def query_text(problem: Problem, mentions: Mentions) -> str:
    """Likewise: the paths and names that the problem puts first, title, text."""
    paths = [mention.path for mention in mentions.paths if mention.place is not Place.CODE]
    names = [m.name for m in mentions.names if m.place in (Place.TITLE, Place.QUOTED)]
    heads = (" ".join(paths[:_MAX_PATHS]), " ".join(names[:_MAX_NAMES]))
    parts = (*heads, problem.title, problem.body)
    return "\n".join(part for part in parts if part)[:MAX_CHARS]


class FileNames:
    """Whether a file's name, or its stem as a word of its own, occurs in the problem."""

    def __init__(self, problem: Problem) -> None:
        self._text = problem.text.lower()
        self._known: dict[str, str] = {}

    def found(self, path: str) -> str:
        """The name or stem that occurs, "" for none."""
        name = path.rpartition("/")[2].lower()
        if name not in self._known:
            stem = without_suffix(name)
            self._known[name] = self._first((name, stem if stem != "__init__" else ""))
        return self._known[name]

    def _first(self, names: Sequence[str]) -> str:
        for name in names:
            # Few names occur at all: compiling a pattern for each costs more than all the rest.
            if (
                name
                and name in self._text
                and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", self._text)
            ):
                return name
        return ""
