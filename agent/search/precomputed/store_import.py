"""Imports precomputed vectors into a vector store and searches them there.

Results have the same form for vectors in a folder and in a store.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import SemanticIndexError
from agent.search.precomputed.index import LazyText, lengths_of
from agent.search.precomputed.vector_files import (
    NO_META,
    Frozen,
    VectorMeta,
    in_one_line,
    masked,
    thawed,
)
from agent.search.stores import Entry, Fields, score_of
from agent.shared.secrets import mask_secrets
from agent.types.events import Notice, StageProgress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.search.precomputed.index import SemanticResult, VectorIndex
    from agent.search.stores import EntryFilter, VectorCollection, VectorMatch
    from agent.types.protocols import Reporter


@dataclass(frozen=True, slots=True)
class PrecomputedResult:
    """A search result. `similarity` is `score_of` the cosine, in [0, 1]."""

    id: str
    similarity: float
    tags: tuple[str, ...]
    text: str
    metadata: Mapping[str, Any]


class _Payload(BaseModel):
    """The payload that `entries_of` writes.

    It is untrusted, because a shared store may contain it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str
    text: str
    metadata: dict[str, Any]


def found_in_folder(
    index: VectorIndex,
    query: NDArray[np.float32],
    top_k: int,
    tags: Iterable[str] = (),
    at_least: float = 0.0,
    reporter: Reporter | None = None,
) -> tuple[PrecomputedResult, ...]:
    """Search a loaded folder for a query (d,). `at_least` is a similarity.

    Texts that cannot be read are reported to `reporter`.
    """
    (found,) = index.search(query[None, :], top_k, at_least=2.0 * at_least - 1.0, tags=tags)
    return tuple(_of_result(one, reporter) for one in found)


def found_in_store(
    collection: VectorCollection,
    query: NDArray[np.float32],
    top_k: int,
    selection: EntryFilter,
    at_least: float = 0.0,
) -> tuple[PrecomputedResult, ...]:
    """Search imported vectors within the selection. Raises StoreError."""
    (found,) = collection.search(query[None, :], top_k, selection, at_least=at_least)
    return tuple(map(_of_match, found))


def _of_result(result: SemanticResult, reporter: Reporter | None) -> PrecomputedResult:
    try:
        text = result.text
    except SemanticIndexError as error:
        text = ""  # the text file was deleted, but the vector is still stored
        if reporter is not None:
            reporter(without_text(result.id, error))
    return PrecomputedResult(
        result.id, score_of(result.score), result.tags, text, thawed(result.metadata)
    )


def _of_match(match: VectorMatch) -> PrecomputedResult:
    tags = match.fields.tags
    try:
        payload = _Payload.model_validate_json(match.payload)
    except ValidationError:
        return PrecomputedResult(match.id, match.score, tags, "", {})
    return PrecomputedResult(payload.id, match.score, tags, payload.text, payload.metadata)


MAX_PAYLOAD = 64 * 1024
"""Maximum bytes of a payload in a store. A longer text is cut and marked as cut."""

STAGE = "import"
BATCH = 1_000
"""Entries written at a time. A killed import loses at most this many."""

_CUT = "... [cut]"


def import_vectors(
    index: VectorIndex,
    collection: VectorCollection,
    *,
    project: str,
    corpus: str,
    reporter: Reporter,
) -> int:
    """Add or replace all vectors of an index, BATCH at a time; return how many were new or changed.

    An entry has the id `corpus/id`, a normalised vector, and `tags`, `path` and `language` from its
    metadata if they are strings. The payload is a JSON object of id, text and metadata, with
    secrets masked. Raises the errors of `VectorCollection.upsert`.
    """
    done = written = 0
    for some in _batches(entries_of(index, project, corpus, reporter)):
        written += collection.upsert(some)
        done += len(some)
        reporter(StageProgress(STAGE, done, len(index)))
    return written


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    waiting = iter(entries)
    while some := list(islice(waiting, BATCH)):
        yield some


def entries_of(
    index: VectorIndex, project: str, corpus: str, reporter: Reporter
) -> Iterator[Entry]:
    """Yield the entries one at a time. Unreadable texts are reported and left out."""
    lengths = lengths_of(index.vectors)
    for row, name in enumerate(index.ids):
        meta = index.metas.get(row, NO_META)
        length = float(lengths[row])
        vector = index.vectors[row].astype(np.float64) / (length or 1.0) * (length > 0.0)
        unit = vector.astype(np.float32)
        payload = _payload(name, text_of(index, row, reporter), meta)
        content = sha256(unit.tobytes() + payload.encode("utf-8", "surrogatepass")).hexdigest()
        fields = Fields(
            project,
            corpus,
            path=_word(meta.metadata.get("path"), ""),
            language=_word(meta.metadata.get("language"), "text"),
            tags=meta.tags,
        )
        yield Entry(f"{corpus}/{name}", content, unit, fields, payload)


def say_texts(index: VectorIndex, reporter: Reporter) -> None:
    """Report the unreadable texts, as an import would."""
    for row, meta in sorted(index.metas.items()):
        if meta.text_file is not None:
            text_of(index, row, reporter)


def text_of(index: VectorIndex, row: int, reporter: Reporter) -> str:
    """Return the text of a row with secrets masked; "" if there is none, or after a notice."""
    try:
        text = LazyText(index.folder, index.metas.get(row, NO_META)).read()
        return mask_secrets(text).text
    except SemanticIndexError as error:
        reporter(without_text(index.ids[row], error))
        return ""


def without_text(name: str, error: SemanticIndexError) -> Notice:
    """Return the notice about a vector whose text cannot be read."""
    return Notice(f"{in_one_line(name)}: without its text: {in_one_line(str(error))}", "warning")


def _payload(name: str, text: str, meta: VectorMeta) -> str:
    """Return JSON of at most MAX_PAYLOAD bytes, without metadata if the metadata alone is too
    large.
    """

    def _of(text: str) -> str:
        return _dumped({"id": name, "text": text, "metadata": metadata})

    metadata = masked(thawed(meta.metadata))
    if len(_of(_CUT)) > MAX_PAYLOAD:
        metadata = {}
    whole = _of(text)
    if len(whole) <= MAX_PAYLOAD:
        return whole
    # Binary search for the longest prefix that fits, because a character takes 1 to 12 bytes.
    most = bisect_right(
        range(len(text)), MAX_PAYLOAD, key=lambda size: len(_of(text[:size] + _CUT))
    )
    return _of(text[: most - 1] + _CUT)


def _dumped(about: dict[str, object]) -> str:
    return json.dumps(about, sort_keys=True)  # ASCII, so each character is one byte


def _word(value: Frozen, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise
