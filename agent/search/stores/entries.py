"""Converts entries to the stored form: escaped texts, and checked vectors of length 1.

Some engines reject or truncate certain characters (NUL, lone surrogates from undecodable file
names). These are escaped, so every text is returned unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import StoreError, StoreMismatch
from agent.search.stores.base import EVERYTHING, Entry, EntryFilter, Fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_PAYLOAD = 64 * 1024
"""Maximum size of a payload in bytes of UTF-8."""

MAX_NAME = 1024
"""Maximum size of an id and of a project in bytes. All engines can index texts of this size."""

_ESCAPE = "\x1a"  # SUBSTITUTE: a control character for this purpose, rare in texts
_SEPARATOR = "\x1f"  # UNIT SEPARATOR, between tags
_REPLACED = re.compile("[\x00\x1a\x1f\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


@dataclass(frozen=True, slots=True, eq=False)
class StoredEntry:
    """An entry in stored form: escaped texts, joined tags, `vector` (d,) of length 1 or 0.

    `tags` has a separator before, between and after the tags, and is "" without tags. An entry has
    a tag if `tags` contains the tag's `tag_mark`.
    """

    id: str
    content: str
    project: str
    corpus: str
    path: str
    language: str
    tags: str
    payload: str
    vector: NDArray[np.float32]

    @property
    def fields(self) -> tuple[str, ...]:
        """Return project, corpus, path, language and tags, which filters can use."""
        return self.project, self.corpus, self.path, self.language, self.tags


def rows_of(entries: Iterable[Entry], dimension: int) -> Mapping[str, StoredEntry]:
    """Return the entries by escaped id, in order of ids.

    The last one wins if an id occurs twice.

    Raises StoreMismatch for another dimension, and StoreError for a vector that is not finite or a
    text that is too long.
    """
    rows = {row.id: row for entry in entries for row in (_row(entry, dimension),)}
    return dict(sorted(rows.items()))


def _row(entry: Entry, dimension: int) -> StoredEntry:
    if (
        max(len(text.encode("utf-8", "surrogatepass")) for text in (entry.id, entry.fields.project))
        > MAX_NAME
    ):
        raise StoreError(
            f"entry {entry.id[:80]!r}...: id or project of more than 1 KiB; shorten it"
        )
    payload = escaped(entry.payload)
    if len(payload.encode()) > MAX_PAYLOAD:
        raise StoreError(f"entry {entry.id!r}: a payload of more than 64 KiB; store less of it")
    fields = entry.fields
    return StoredEntry(
        escaped(entry.id),
        escaped(entry.content),
        escaped(fields.project),
        escaped(fields.corpus),
        escaped(fields.path),
        escaped(fields.language),
        joined(fields.tags),
        payload,
        _unit(entry, dimension),
    )


def _unit(entry: Entry, dimension: int) -> NDArray[np.float32]:
    vector = np.asarray(entry.vector, dtype=np.float32)
    if vector.shape != (dimension,):
        raise StoreMismatch(
            f"entry {entry.id!r}: a vector of shape {vector.shape} in a collection of dimension"
            f" {dimension}; embed with the collection's model, or name another collection"
        )
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(length):
        raise StoreError(f"entry {entry.id!r}: a vector that is not finite; embed it again")
    return vector if length == 0.0 else (vector / length).astype(np.float32)


def unit_queries(queries: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Return `queries` as (m, d) float32 of length 1; zero and non-finite rows become zeros.

    Raises StoreMismatch for another dimension.
    """
    rows = np.atleast_2d(np.asarray(queries, dtype=np.float32))
    if rows.ndim != 2 or rows.shape[1] != dimension:
        raise StoreMismatch(
            f"queries of shape {np.shape(queries)} against vectors of dimension {dimension};"
            " embed with the collection's model, or index again"
        )
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    usable = np.isfinite(lengths) & (lengths > 0)
    divisors = np.where(usable, lengths, 1.0)
    return np.where(usable, rows / divisors, 0.0).astype(np.float32)


def escaped_filter(selection: EntryFilter) -> EntryFilter:
    """Return the filter with escaped texts and `under` without a final slash. "." selects
    everything.
    """
    if selection == EVERYTHING:
        return selection
    under = selection.under.rstrip("/")
    return EntryFilter(
        None if selection.project is None else escaped(selection.project),
        frozenset(map(escaped, selection.corpora)),
        frozenset(map(escaped, selection.languages)),
        frozenset(map(escaped, selection.tags)),
        "" if under == "." else escaped(under.removeprefix("./")),
        None if selection.ids is None else frozenset(map(escaped, selection.ids)),
    )


def inside(folder: str) -> tuple[str, str]:
    """Return the bounds of paths below a folder: the first is inclusive, the second exclusive."""
    return folder + "/", folder + "0"  # "0" follows "/" in ASCII, and therefore in UTF-8


def fields_of(project: str, corpus: str, path: str, language: str, tags: str) -> Fields:
    """Return the original fields from escaped texts."""
    return Fields(
        restored(project), restored(corpus), restored(path), restored(language), split(tags)
    )


def escaped(text: str) -> str:
    """Return `text` with NUL, lone surrogates and marker characters escaped.

    `restored` reverses it.
    """
    return _REPLACED.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def restored(text: str) -> str:
    """Return the original of an escaped text."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def joined(tags: Iterable[str]) -> str:
    """Return tags as one text (see `StoredEntry`)."""
    text = "".join(escaped(tag) + _SEPARATOR for tag in tags)
    return _SEPARATOR + text if text else ""


def split(tags: str) -> tuple[str, ...]:
    """Return the tags that were joined."""
    return tuple(map(restored, tags[1:-1].split(_SEPARATOR))) if tags else ()


def tag_mark(tag: str) -> str:
    """Return the text that joined tags contain if they include this escaped tag."""
    return f"{_SEPARATOR}{tag}{_SEPARATOR}"
