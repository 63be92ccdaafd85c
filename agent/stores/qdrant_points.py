"""Entries as points of Qdrant, and selections as its filters."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from qdrant_client import models

from agent.stores.base import Fields, Selection
from agent.stores.border import Row, escaped, fields_of, joined, restored, split

T = TypeVar("T")

FIELDS = ("project", "corpus", "path", "language")

INDEXES: Mapping[str, str] = {
    **dict.fromkeys((*FIELDS, "tags", "folders"), "keyword"),
    "zero": "bool",
}
"""All that filters ask for: a server in strict mode refuses what it has no index of."""

AT_ONCE = 500
"""Points a request: 1 MB of 384 numbers."""

MAX_REQUEST = 16 * 1024 * 1024
"""Bytes of points a request: servers take 32 MiB by default."""

_NUMBER = 25  # characters of a float32 in JSON, with its comma, at most


def number_of(name: str) -> str:
    """The UUID of an (escaped) id: Qdrant takes no texts."""
    return str(uuid.UUID(bytes=blake2b(name.encode(), digest_size=16).digest()))


def point_of(row: Row) -> Any:
    """A point. `folders` are the path and all that it lies in: what `under` is compared with."""
    payload = {
        "id": row.id,
        "content": row.content,
        "project": row.project,
        "corpus": row.corpus,
        "path": row.path,
        "language": row.language,
        "tags": list(map(escaped, split(row.tags))),
        "folders": _folders(row.path),
        "payload": row.payload,
        "zero": not row.vector.any(),
    }
    return models.PointStruct(id=number_of(row.id), vector=row.vector.tolist(), payload=payload)


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """At most AT_ONCE at a time."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def by_size(points: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The points in runs of at most MAX_REQUEST bytes of JSON; one that is larger alone."""
    start = size = 0
    for number, point in enumerate(points):
        own = _NUMBER * len(point.vector) + len(json.dumps(point.payload))  # ASCII: not less
        if size + own > MAX_REQUEST and number > start:
            yield points[start:number]
            start, size = number, 0
        size += own
    if start < len(points):
        yield points[start:]


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def fields_in(payload: Mapping[str, Any]) -> Fields:
    """The fields that a point carries."""
    project, corpus, path, language = (payload[name] for name in FIELDS)
    return fields_of(project, corpus, path, language, joined(map(restored, payload["tags"])))


def filter_of(selection: Selection, *, zero: bool | None = None) -> Any:
    """A filter of Qdrant. The selection is escaped; `zero` chooses vectors that are, or are not."""
    must: list[Any] = []
    for field, one in (("project", selection.project), ("folders", selection.under or None)):
        if one is not None:
            must.append(_equals(field, one))
    for field, wanted in (("corpus", selection.corpora), ("language", selection.languages)):
        if wanted:
            matching = models.MatchAny(any=sorted(wanted))
            must.append(models.FieldCondition(key=field, match=matching))
    must += [_equals("tags", tag) for tag in sorted(selection.tags)]
    if selection.ids is not None:
        must.append(models.HasIdCondition(has_id=sorted(map(number_of, selection.ids))))
    if zero is not None:
        must.append(_equals("zero", zero))
    return models.Filter(must=must)


def _equals(field: str, value: str | bool) -> Any:
    return models.FieldCondition(key=field, match=models.MatchValue(value=value))
