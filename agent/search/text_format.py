"""The text format of documents and queries: NAME, TYPE, FILE and DESCRIPTION, one per line.

The cosine also depends on the format, so queries use the format of the documents: an identifier
becomes a NAME, prose a DESCRIPTION. Word search and static vectors ignore the labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

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
