"""Into a vector store: precomputed vectors as entries of a collection, beside what was embedded."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import SemanticIndexError
from agent.events import Notice, StageProgress
from agent.precomputed.files import in_one_line
from agent.precomputed.index import LazyText, lengths_of
from agent.precomputed.parsing import NO_META, Frozen, Meta, masked, thawed
from agent.secrets.masking import mask_secrets
from agent.stores.base import Entry, Fields

if TYPE_CHECKING:
    from agent.precomputed.index import VectorIndex
    from agent.protocols import Reporter
    from agent.stores.base import VectorCollection

MAX_PAYLOAD = 64 * 1024
"""Bytes that a store takes with an entry. A longer text is cut, and says so."""

STAGE = "import"
BATCH = 1_000
"""Entries that are written at a time: what a killed import loses at most."""

_CUT = "... [cut]"


def import_vectors(
    index: VectorIndex,
    collection: VectorCollection,
    *,
    project: str,
    corpus: str,
    reporter: Reporter,
) -> int:
    """Add or replace all vectors of an index, BATCH at a time; how many were new or had changed.

    Entries have the id `corpus/id`, normalised vectors, and what their metadata says: `tags`,
    `path` and `language` where these are strings; a JSON object of id, text and metadata is the
    payload, what looks like a secret masked. Raises what `VectorCollection.upsert` does.
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
    """The entries, made one at a time. A text that cannot be read is said, and left out."""
    lengths = lengths_of(index.vectors)
    for row, name in enumerate(index.ids):
        meta = index.metas.get(row, NO_META)
        length = float(lengths[row])
        vector = index.vectors[row].astype(np.float64) / (length or 1.0) * (length > 0.0)
        unit = vector.astype(np.float32)
        payload = _payload(name, _text(index, name, meta, reporter), meta)
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
    """Say which texts could not be read, as an import would."""
    for row, meta in sorted(index.metas.items()):
        if meta.text_file is not None:
            _text(index, index.ids[row], meta, reporter)


def _text(index: VectorIndex, name: str, meta: Meta, reporter: Reporter) -> str:
    try:
        return mask_secrets(LazyText(index.folder, meta).read()).text
    except SemanticIndexError as error:
        reporter(without_text(name, error))
        return ""


def without_text(name: str, error: SemanticIndexError) -> Notice:
    """What is said of a vector whose text cannot be read."""
    return Notice(f"{in_one_line(name)}: without its text: {in_one_line(str(error))}", "warning")


def _payload(name: str, text: str, meta: Meta) -> str:
    """JSON of at most MAX_PAYLOAD bytes; without the metadata where that alone is too large."""

    def _of(text: str) -> str:
        return _dumped({"id": name, "text": text, "metadata": metadata})

    metadata = masked(thawed(meta.metadata))
    if len(_of(_CUT)) > MAX_PAYLOAD:
        metadata = {}
    whole = _of(text)
    if len(whole) <= MAX_PAYLOAD:
        return whole
    # A character takes one byte to twelve: the longest beginning that fits, by halves.
    most = bisect_right(
        range(len(text)), MAX_PAYLOAD, key=lambda size: len(_of(text[:size] + _CUT))
    )
    return _of(text[: most - 1] + _CUT)


def _dumped(about: dict[str, object]) -> str:
    return json.dumps(about, sort_keys=True)  # ASCII: a character is a byte


def _word(value: Frozen, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise
