"""One format of documents and queries: NAME, TYPE, FILE, DESCRIPTION, a line each.

Cosine compares what is alike in form too, so a query is put into the form of the documents: as a
NAME where it is an identifier, as a DESCRIPTION where it is prose. Words and static vectors look
past the labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agent.corpora.passages import Label

QueryKind = Literal["identifier", "prose"]

FORMATTED = frozenset({Label.DOCS, Label.INTENT})
"""Corpora whose texts are in this format; others are searched with the query as it is."""

MAX_TEXT = 16_000
"""Characters of one passage: more than embedding models read, well below a payload's 64 KiB."""

_LABEL = re.compile(r"^(?:NAME|TYPE|FILE|DESCRIPTION): ?", re.MULTILINE)
_NAME = re.compile(r"^NAME: ?(.*)$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|#|->)[A-Za-z_]\w*)*(?:\(\))?")
_SPLIT = re.compile(r"\.|::|#|->")


@dataclass(frozen=True, slots=True)
class Query:
    """A query and what it is. `name` has dots between its parts; "" for prose."""

    text: str
    kind: QueryKind
    name: str = ""

    def formatted(self, label: Label) -> str:
        """As the texts of a corpus are."""
        if label not in FORMATTED:
            return self.text
        return f"NAME: {self.name}" if self.kind == "identifier" else f"DESCRIPTION: {self.text}"


def read_query(text: str) -> Query:
    """A query of one identifier (dotted, with `::` or `#`, called or not) is a name."""
    stripped = text.strip()
    if len(stripped) <= 200 and _IDENTIFIER.fullmatch(stripped):
        name = ".".join(_SPLIT.split(stripped.removesuffix("()")))
        return Query(stripped, "identifier", name)
    return Query(stripped, "prose")


def described(name: str, kind: str, path: str, description: str) -> str:
    """The text of a document."""
    lines = [f"NAME: {name}", f"TYPE: {kind}", f"FILE: {path}", f"DESCRIPTION: {description}"]
    return "\n".join(lines)[:MAX_TEXT]


def without_labels(text: str) -> str:
    """The words of a text in any format."""
    return _LABEL.sub("", text)


def name_in(text: str) -> str:
    """What its NAME line says; "" where there is none."""
    found = _NAME.search(text)
    return found.group(1) if found else ""
