"""What every engine does with values on their way in and out.

Texts keep what an engine would refuse or cut (NUL, lone surrogates of undecodable file names) as an
escape, so that each of them comes back as it was. Vectors are checked and brought to length 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np

from agent.errors import StoreError, StoreMismatch
from agent.stores.base import EVERYTHING, CollectionInfo, Entry, Fields, Selection

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_PAYLOAD = 64 * 1024
"""Bytes of UTF-8 that an entry may carry."""

MAX_NAME = 1024
"""Bytes of an id and of a project: what all engines can index."""

_ESCAPE = "\x1a"  # SUBSTITUTE: what it was made for, and rare in texts
_SEPARATOR = "\x1f"  # UNIT SEPARATOR, between tags
_REPLACED = re.compile("[\x00\x1a\x1f\ud800-\udfff]")
_PASSWORD = re.compile(r"(?<=//)([^/@:]*):.*@")  # a password may hold an @ that was not quoted
_BARE_PASSWORD = re.compile(r"^([^/@:]*):(?!//).*@")  # `user:SECRET@host`: the scheme was forgotten
_PARAMETER = re.compile(r"(?i)\b((?:ssl)?password|api[_-]?key|token)=([^&\s]*)")
_BETWEEN_PARTS = re.compile("[@/:?#&]")  # where a driver may cut a password that was not quoted
_SHORTEST_PART = 3  # a shorter one is in many words
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """An entry as engines keep it: texts escaped, `tags` one text, `vector` (d,) of length 1 or 0.

    `tags` begins, ends and is divided by one mark, "" where there are none: a tag is held if
    `tag_mark` of it is a part of the text.
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
        """Project, corpus, path, language, tags: what an entry is selected by."""
        return self.project, self.corpus, self.path, self.language, self.tags


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    return _PARAMETER.sub(r"\1=...", _BARE_PASSWORD.sub(r"\1@", _PASSWORD.sub(r"\1@", url)))


def without_password_of(url: str, text: str) -> str:
    """What a driver says of a store, without the URL's password or a part of it."""
    found = {part for whole in _passwords(url) for part in (whole, *_BETWEEN_PARTS.split(whole))}
    for part in sorted(found, key=lambda part: (-len(part), part)):
        if len(part) >= _SHORTEST_PART:
            text = text.replace(part, "...")
    return text


def _passwords(url: str) -> Iterator[str]:
    """As they are written, and as they are meant."""
    for pattern in (_PASSWORD, _BARE_PASSWORD):
        if found := pattern.search(url):
            written = found[0][len(found[1]) + 1 : -1]
            yield from (written, unquote(written))
    for parameter in _PARAMETER.finditer(url):
        yield from (parameter[2], unquote(parameter[2]))


def checked_name(name: str) -> str:
    """A name that every engine takes. Raises StoreError for another."""
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"collection name {name!r}: use up to 48 letters, digits, dots, dashes and underscores,"
            " a letter or digit first"
        )
    return name


def refuse_other(found: CollectionInfo, model: str, dimension: int) -> None:
    """Raise StoreMismatch where a collection was made for another model or dimension."""
    if (found.model, found.dimension) != (model, dimension):
        raise StoreMismatch(
            f"collection {found.name} holds vectors of {found.model} ({found.dimension} numbers"
            f" each), not of {model} ({dimension}); use that model, or drop the collection and"
            " index again"
        )


def rows_of(entries: Iterable[Entry], dimension: int) -> Mapping[str, Row]:
    """The entries by escaped id, in order of ids; of two with one id the last.

    Raises StoreMismatch for another dimension, StoreError for what is no vector or too long.
    """
    rows = {row.id: row for entry in entries for row in (_row(entry, dimension),)}
    return dict(sorted(rows.items()))


def _row(entry: Entry, dimension: int) -> Row:
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
    return Row(
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
    """`queries` as (m, d) float32, of length 1 each; rows that are zero or not finite as zeros.

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


def escaped_selection(selection: Selection) -> Selection:
    """The same with escaped texts and `under` without a slash at its end; "." is everything."""
    if selection == EVERYTHING:
        return selection
    under = selection.under.rstrip("/")
    return Selection(
        None if selection.project is None else escaped(selection.project),
        frozenset(map(escaped, selection.corpora)),
        frozenset(map(escaped, selection.languages)),
        frozenset(map(escaped, selection.tags)),
        "" if under == "." else escaped(under.removeprefix("./")),
        None if selection.ids is None else frozenset(map(escaped, selection.ids)),
    )


def inside(folder: str) -> tuple[str, str]:
    """Paths below a folder are those from the first text on, up to but without the second."""
    return folder + "/", folder + "0"  # "0" follows "/" in ASCII, and so in UTF-8


def fields_of(project: str, corpus: str, path: str, language: str, tags: str) -> Fields:
    """Fields as they were given, from escaped texts."""
    return Fields(
        restored(project), restored(corpus), restored(path), restored(language), split(tags)
    )


def escaped(text: str) -> str:
    """`text` without NUL, lone surrogates and our own marks; see `restored`."""
    return _REPLACED.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def restored(text: str) -> str:
    """The text that was escaped."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def joined(tags: Iterable[str]) -> str:
    """Tags as one text (see `Row`)."""
    text = "".join(escaped(tag) + _SEPARATOR for tag in tags)
    return _SEPARATOR + text if text else ""


def split(tags: str) -> tuple[str, ...]:
    """The tags that were joined."""
    return tuple(map(restored, tags[1:-1].split(_SEPARATOR))) if tags else ()


def tag_mark(tag: str) -> str:
    """What is a part of joined tags if an (escaped) tag is one of them."""
    return f"{_SEPARATOR}{tag}{_SEPARATOR}"
