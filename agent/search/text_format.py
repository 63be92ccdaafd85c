"""The text format of documents and queries: NAME, TYPE, FILE and DESCRIPTION, one per line.

The cosine also depends on the format, so queries use the format of the documents: an identifier
becomes a NAME, prose a DESCRIPTION. Word search and static vectors ignore the labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agent.search.passages import Label

QueryKind = Literal["identifier", "prose"]

FORMATTED = frozenset({Label.DOCS, Label.INTENT})
"""Corpora whose texts have this format. Other corpora are searched with the unchanged query."""

MAX_TEXT = 16_000
"""Maximum characters of a passage: more than embedding models read, and well below the payload
limit of 64 KiB.
"""

_LABEL = re.compile(r"^(?:NAME|TYPE|FILE|DESCRIPTION): ?", re.MULTILINE)
_NAME = re.compile(r"^NAME: ?(.*)$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|#|->)[A-Za-z_]\w*)*(?:\(\))?")
_SPLIT = re.compile(r"\.|::|#|->")


@dataclass(frozen=True, slots=True)
class Query:
    """A query and its kind. `name` has dots between its parts and is "" for prose."""

    text: str
    kind: QueryKind
    name: str = ""

    def formatted(self, label: Label) -> str:
        """Return the query in the text format of a corpus."""
        if label not in FORMATTED:
            return self.text
        return f"NAME: {self.name}" if self.kind == "identifier" else f"DESCRIPTION: {self.text}"


def read_query(text: str) -> Query:
    """Parse a query. A single identifier (dotted, with `::`, `#` or a call) is a name."""
    stripped = text.strip()
    if len(stripped) <= 200 and _IDENTIFIER.fullmatch(stripped):
        name = ".".join(_SPLIT.split(stripped.removesuffix("()")))
        return Query(stripped, "identifier", name)
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
