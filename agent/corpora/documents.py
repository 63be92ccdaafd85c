"""The documents of a project as passages: sections of README and docs, and docstrings."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from agent.corpora.docstrings import first_sentence
from agent.corpora.formats import described
from agent.corpora.passages import Label, Passage
from agent.corpora.sections import cut_sections
from agent.corpora.symbols import Symbol, read_symbols
from agent.repository.languages import is_test_path, is_vendored_path
from agent.retrieval.pool import Cancelled
from agent.secrets.masking import mask_secrets

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.retrieval.index import Index

PROSE = frozenset({"markdown", "rst", "asciidoc", "text"})
"""Languages of files that may be documents."""

_FOLDERS = frozenset({"doc", "docs", "documentation", "guide", "guides", "manual", "wiki", "book"})
_NAMES = ("readme", "contributing", "usage", "tutorial", "faq", "overview", "guide")
_NOT_DOCUMENTS = (
    "changelog", "changes", "history", "news", "release", "license", "licence", "copying",
    "authors", "contributors", "requirements", "constraints", "cmakelists", "robots", "code_of",
)  # fmt: skip
"""Beginnings of names: lists of versions, people and packages share words with anything."""

_SUFFIXES = frozenset(
    {"", ".md", ".markdown", ".mdx", ".rst", ".rest", ".adoc", ".asciidoc", ".txt"}
)
_MAX_TITLE = 120


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """The `CorpusSource` of documents. `docstrings`: those of symbols too."""

    index: Index
    docstrings: bool = True

    @property
    def label(self) -> Label:
        """`[docs]`."""
        return Label.DOCS

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Sections by path and line, then docstrings by path and line."""
        found = list(section_passages(snapshot, cancel))
        if self.docstrings:
            symbols = read_symbols(snapshot, self.index, cancel)
            found.extend(docstring_passage(symbol) for symbol in symbols if symbol.docstring)
        return tuple(found)


def section_passages(snapshot: Snapshot, cancel: threading.Event) -> Iterator[Passage]:
    """Sections of all documents. Raises `pool.Cancelled`."""
    for path in sorted(snapshot.files):
        if cancel.is_set():
            raise Cancelled
        file = snapshot.files[path]
        if file.language not in PROSE or not is_document(path):
            continue
        text = mask_secrets(snapshot.text(path)).text
        for section in cut_sections(text, file.language):
            heading = " > ".join(section.headings) or PurePosixPath(path).name
            yield Passage(
                corpus=Label.DOCS,
                title=heading[:_MAX_TITLE],
                text=described(heading, "document", path, section.text),
                path=path,
                start=section.start,
                end=section.end,
                language=file.language,
                tags=("section",),
            )


def docstring_passage(symbol: Symbol) -> Passage:
    """What a symbol says of itself, under its name."""
    said = mask_secrets(symbol.docstring).text
    return Passage(
        corpus=Label.DOCS,
        title=f"{symbol.name}: {first_sentence(said)}"[:_MAX_TITLE],
        text=described(symbol.name, symbol.kind.value, symbol.path, said),
        path=symbol.path,
        start=symbol.start,
        end=symbol.end,
        symbol=symbol.name,
        language=symbol.language,
        tags=("docstring",),
    )


def is_document(path: str) -> bool:
    """Whether a prose file is written for the project's users: README, docs, the top folder."""
    pure = PurePosixPath(path)
    name = pure.name.lower()
    if pure.suffix.lower() not in _SUFFIXES or name.startswith(_NOT_DOCUMENTS):
        return False
    if is_vendored_path(path) or is_test_path(path):
        return False
    if name.startswith(_NAMES):
        return True
    inside = not _FOLDERS.isdisjoint(part.lower() for part in pure.parts[:-1])
    return inside or (len(pure.parts) == 1 and pure.suffix.lower() not in ("", ".txt"))
