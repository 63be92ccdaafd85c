"""Vectors of passages in a store: one entry for each text of a corpus of a project.

The given passages provide the current location of a text. Entries of other commits are ignored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import numpy as np

from agent.errors import ProviderError
from agent.retrieval.index import PieceTerms, Terms
from agent.search.passages import Label, Passage, name_in, without_labels
from agent.search.stores import Entry, EntryFilter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.embedding import StaticEncoder
    from agent.search.stores import VectorCollection, VectorStore
    from agent.types.protocols import Embedder

_BATCH = 256  # texts embedded and written at a time: a killed run loses at most this many
_IDS_AT_ONCE = 5_000
_OVER_RETRIEVE = 5  # so that stale entries and repeated symbols can be dropped


class StaticEmbedder:
    """The package's static encoder as an `Embedder`. A text without known terms gives zeros."""

    def __init__(self, encoder: StaticEncoder) -> None:
        self._encoder = encoder

    @property
    def name(self) -> str:
        """Return the fingerprint of the weights."""
        return f"static-{self._encoder.fingerprint}"

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "document"]
    ) -> NDArray[np.float32]:
        """Return float32 (len(texts), d), rows normalised or zero. Never raises ProviderError."""
        return await asyncio.to_thread(self._queries if kind == "query" else self._documents, texts)

    def _queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        terms, rows = Terms(), []
        for text in texts:
            counts = terms.count_hashes(without_labels(text))
            hashes = np.array(sorted(counts), dtype=np.uint64)
            weights = np.array([np.log1p(counts[int(key)]) for key in hashes], dtype=np.float64)
            rows.append(self._encoder.query(hashes, weights))
        return np.array(rows, dtype=np.float32).reshape(len(texts), self._encoder.dimension)

    def _documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        terms, rows = Terms(), []
        for number, text in enumerate(texts):
            counts = terms.count_hashes(without_labels(text))
            names = terms.count_hashes(name_in(text))
            for key in sorted(counts.keys() | names.keys()):
                rows.append((number, key, counts.get(key, 0), names.get(key, 0)))
        pieces, hashes, *numbers = zip(*rows, strict=True) if rows else ((),) * 4
        vocabulary, of_row = np.unique(np.array(hashes, dtype=np.uint64), return_inverse=True)
        columns = (np.array(values, dtype=np.int64) for values in (pieces, of_row, *numbers))
        data = self._encoder.encode(PieceTerms(len(texts), vocabulary, *columns))
        values = np.frombuffer(data, np.int8).reshape(len(texts), -1).astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
        return np.asarray(values / np.maximum(lengths, 1e-9)[:, None], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class CorpusReport:
    """The result of indexing a corpus, in numbers of its distinct texts; `note`: why incomplete."""

    label: Label
    passages: int
    known: int = 0
    embedded: int = 0
    failed: int = 0
    note: str = ""

    @property
    def complete(self) -> bool:
        """Whether the corpus has passages and all of them have vectors."""
        return not self.note and self.passages > 0


@dataclass(slots=True)
class PassageVectors:
    """The collection of one model in a store, for one project."""

    store: VectorStore
    embedder: Embedder
    project: str
    _collection: VectorCollection | None = field(init=False, default=None)

    @property
    def is_free(self) -> bool:
        """Whether embedding costs nothing."""
        return isinstance(self.embedder, StaticEmbedder)

    async def fill(
        self,
        label: Label,
        passages: Sequence[Passage],
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> CorpusReport:
        """Embed and store the missing texts. Raises StoreError, and ProviderError at the start."""
        texts = self._first(label, passages)
        missing = await asyncio.to_thread(self._missing, list(texts))
        embedded = done = 0
        for start in range(0, len(missing), _BATCH):
            some = {name: passages[texts[name]] for name in missing[start : start + _BATCH]}
            try:
                embedded += await self._embed(label, some)
            except ProviderError:
                if not embedded:
                    raise
                break
            done += len(some)
            progress(done, len(missing))
        failed = len(missing) - embedded
        note = f"{failed:,} texts were not embedded: index again" if failed else ""
        known = len(texts) - len(missing)
        return CorpusReport(label, len(passages), known, embedded, failed, note)

    async def _embed(self, label: Label, texts: Mapping[str, Passage]) -> int:
        """Embed and store these texts by their entry ids; return how many got a vector."""
        rows = await self.embedder.embed([one.text for one in texts.values()], kind="document")
        entries = [
            Entry(name, passage.content, self.project, label.value, row)
            for (name, passage), row in zip(texts.items(), rows, strict=True)
            if row.any()  # a zero row from a server is a failure: it is embedded again later
        ]
        collection = self._opened(rows.shape[1])
        await asyncio.to_thread(collection.upsert, entries)
        return len(texts) if self.is_free else len(entries)

    async def query(self, text: str) -> NDArray[np.float32]:
        """Embed a query, float32 (d,). Raises ProviderError."""
        rows = await self.embedder.embed([text], kind="query")
        return np.asarray(rows[0], dtype=np.float32)

    async def search(
        self, label: Label, passages: Sequence[Passage], query: NDArray[np.float32], top_k: int
    ) -> list[tuple[int, float]]:
        """Return the numbers of passages and their scores for a query (d,), best first.

        The first passage of a text represents all. Raises StoreError.
        """
        first, limit = self._first(label, passages), top_k * _OVER_RETRIEVE
        collection, selection = self._opened(query.size), self._own(label)
        matches = await asyncio.to_thread(collection.search, query, limit, selection)
        return [(first[match.id], match.score) for match in matches if match.id in first]

    def count(self, label: Label) -> int:
        """Return the number of the project's entries of a corpus. Raises StoreError."""
        collection = self._existing()
        return 0 if collection is None else collection.count(self._own(label))

    def forget(self, label: Label) -> int:
        """Remove the project's entries of a corpus; return how many. Raises StoreError."""
        collection = self._existing()
        return 0 if collection is None else collection.delete(self._own(label))

    def _first(self, label: Label, passages: Sequence[Passage]) -> dict[str, int]:
        first: dict[str, int] = {}
        for number, passage in enumerate(passages):
            first.setdefault(entry_id(self.project, label, passage.content), number)
        return first

    def _own(self, label: Label) -> EntryFilter:
        return EntryFilter(project=self.project, corpus=label.value)

    def _missing(self, ids: Sequence[str]) -> list[str]:
        collection = self._existing()
        if collection is None:
            return list(ids)
        known: set[str] = set()
        for start in range(0, len(ids), _IDS_AT_ONCE):
            known |= collection.contents(frozenset(ids[start : start + _IDS_AT_ONCE])).keys()
        return [entry for entry in ids if entry not in known]

    def _existing(self) -> VectorCollection | None:
        """Return the model's collection; None if the store has none yet."""
        name = collection_name(self.embedder.name)
        if self._collection is None:
            for info in self.store.collections():
                if info.name == name:
                    self._opened(info.dimension)
        return self._collection

    def _opened(self, dimension: int) -> VectorCollection:
        if self._collection is None or self._collection.dimension != dimension:
            model = self.embedder.name
            self._collection = self.store.collection(collection_name(model), model, dimension)
        return self._collection


def collection_name(model: str) -> str:
    """Return the collection name of an embedder: readable and unique."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-._")[:30] or "model"
    return f"{readable}-{sha256(model.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def entry_id(project: str, label: Label, content: str) -> str:
    """Return the entry id for one text of one corpus of one project."""
    text = f"{project}\0{label.value}\0{content}"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
