"""Vectors of passages in a store: each text is embedded once.

An entry represents one text of one corpus of one project, however often the text occurs. The given
passages provide the current location of a text. Entries of other commits are ignored.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import ProviderError
from agent.search.passages import CorpusUnavailable, Label, Passage
from agent.search.static_embedder import StaticEmbedder
from agent.search.stores import Entry, EntryFilter, Fields, score_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.search.corpora.precomputed import VectorSource
    from agent.search.stores import VectorCollection, VectorStore
    from agent.search.word_index import WordIndex
    from agent.types.protocols import Embedder


@dataclass(frozen=True, slots=True)
class CorpusReport:
    """The result of indexing a corpus.

    `note` gives the reason if it is incomplete, "" otherwise.
    """

    label: Label
    passages: int
    filled: FillCounts | None
    note: str = ""

    @property
    def complete(self) -> bool:
        """Whether the corpus has passages and all of them have vectors."""
        return not self.note and self.passages > 0


async def fill_corpus(
    label: Label,
    opened: Callable[[Label], Awaitable[WordIndex]],
    vectors: PassageVectors | VectorSource | None,
    progress: Callable[[int, int], None],
) -> CorpusReport:
    """Store the vectors of all passages of a corpus. Raises StoreError.

    The report has a note if the corpus is unavailable, empty or could not be embedded.
    """
    try:
        word_index = await opened(label)
    except CorpusUnavailable as error:
        return CorpusReport(label, 0, None, str(error))
    count = len(word_index.passages)
    if not count:
        return CorpusReport(label, 0, None, "nothing of it was found in this project")
    if vectors is None:
        return CorpusReport(label, count, None, "no vectors: words alone")
    if not isinstance(vectors, PassageVectors):  # another program embedded them
        return CorpusReport(label, count, FillCounts(known=count))
    try:
        filled = await vectors.fill(label, word_index.passages, progress)
    except ProviderError as error:
        return CorpusReport(label, count, None, f"nothing was embedded: {error}")
    note = f"{filled.failed:,} texts were not embedded: index again" if filled.failed else ""
    return CorpusReport(label, count, filled, note)


BATCH = 256
"""Texts embedded and written at a time. A killed run loses at most this many."""

OVER_RETRIEVE = 5
"""Multiple of the wanted results to request, so that stale entries and repeated symbols can be
dropped.
"""

_IDS_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class FillCounts:
    """Numbers of distinct texts: `known` in the store, `embedded` now, `failed` to embed."""

    known: int = 0
    embedded: int = 0
    failed: int = 0


@dataclass(slots=True)
class PassageVectors:
    """The collection of one model in a store, for one project."""

    store: VectorStore
    embedder: Embedder
    project: str
    # Stored with its dimension: finding the dimension may need a request to the engine.
    _collection: tuple[int, VectorCollection] | None = field(init=False, default=None)
    _named: dict[Label, tuple[Sequence[Passage], tuple[str, ...]]] = field(
        init=False, default_factory=dict
    )

    async def fill(
        self,
        label: Label,
        passages: Sequence[Passage],
        progress: Callable[[int, int], None] | None = None,
    ) -> FillCounts:
        """Embed and store the missing texts. Raises StoreError and ProviderError."""
        wanted = self._by_id(label, passages)
        missing = await asyncio.to_thread(self._missing, wanted)
        done, embedded, last = 0, 0, None
        for start in range(0, len(missing), BATCH):
            some = missing[start : start + BATCH]
            try:
                embedded += await self._embed(label, some, wanted)
            except ProviderError as error:
                last = error
                if not embedded:
                    raise
                break
            done += len(some)
            if progress is not None:
                progress(done, len(missing))
        if last is not None and progress is not None:
            progress(done, len(missing))
        return FillCounts(len(wanted) - len(missing), embedded, len(missing) - embedded)

    async def _embed(self, label: Label, ids: Sequence[str], wanted: Mapping[str, Passage]) -> int:
        """Embed and store these texts; return how many got a vector."""
        rows = await self.embedder.embed([wanted[i].text for i in ids], kind="document")
        # A zero row from a server is a failure, and the text is embedded again later.
        final = isinstance(self.embedder, StaticEmbedder)
        keep = [final or bool(row.any()) for row in rows]
        entries = [
            _entry(entry_id, label, wanted[entry_id], row, self.project)
            for entry_id, row, kept in zip(ids, rows, keep, strict=True)
            if kept
        ]
        collection = self._opened(rows.shape[1])
        await asyncio.to_thread(collection.upsert, entries)
        return len(entries)

    async def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed queries in one call, float32 (len(texts), d). Raises ProviderError."""
        return await self.embedder.embed(texts, kind="query")

    async def search(
        self,
        label: Label,
        passages: Sequence[Passage],
        queries: NDArray[np.float32],
        top_k: int,
        at_least: float = 0.0,
    ) -> list[list[tuple[int, float]]]:
        """Return for each query the numbers of passages and their scores, best first.

        If a text occurs several times, its first passage represents all. Raises StoreError.
        """
        first: dict[str, int] = {}
        for number, entry in enumerate(self._ids(label, passages)):
            first.setdefault(entry, number)
        collection = self._opened(queries.shape[1])
        selection = EntryFilter(project=self.project, corpora=frozenset({label.value}))
        found = await asyncio.to_thread(
            lambda: collection.search(queries, top_k * OVER_RETRIEVE, selection, at_least=at_least)
        )
        return [
            [(first[match.id], match.score) for match in matches if match.id in first]
            for matches in found
        ]

    async def similarities(
        self, label: Label, passages: Sequence[Passage], query: NDArray[np.float32]
    ) -> list[float]:
        """Return `score_of` the cosine of each passage with a query (d,); 0 for a passage without a
        vector.
        """
        if label is Label.CODE:
            rows = await self.embedder.embed([p.text for p in passages], kind="document")
        else:
            rows = await asyncio.to_thread(self._rows, label, passages, query.size)
        return [
            score_of(float(cosine)) if row.any() else 0.0
            for row, cosine in zip(rows, rows.astype(np.float64) @ query, strict=True)
        ]

    def _rows(
        self, label: Label, passages: Sequence[Passage], dimension: int
    ) -> NDArray[np.float32]:
        ids = self._ids(label, passages)
        known = self._opened(dimension).vectors(frozenset(ids))
        zero = np.zeros(dimension, dtype=np.float32)
        return np.array([known.get(i, zero) for i in ids], dtype=np.float32).reshape(-1, dimension)

    def forget(self, label: Label) -> int:
        """Remove the project's entries of a corpus; return how many. Raises StoreError."""
        dimension = self._known_dimension()
        if dimension is None:
            return 0
        selection = EntryFilter(project=self.project, corpora=frozenset({label.value}))
        return self._opened(dimension).delete(selection)

    def entry_id(self, label: Label, passage: Passage) -> str:
        """Return the entry id of a passage in this project."""
        return entry_id(self.project, label, passage.content)

    # ------------------------------------------------------------------------------------ private

    def _by_id(self, label: Label, passages: Sequence[Passage]) -> dict[str, Passage]:
        found: dict[str, Passage] = {}
        for entry, passage in zip(self._ids(label, passages), passages, strict=True):
            found.setdefault(entry, passage)
        return found

    def _ids(self, label: Label, passages: Sequence[Passage]) -> Sequence[str]:
        """Return the entry ids of passages. Those of a whole corpus are cached."""
        known = self._named.get(label)
        if known is None or known[0] is not passages:
            ids = tuple(self.entry_id(label, passage) for passage in passages)
            if not isinstance(passages, tuple):
                return ids  # the list may change
            known = self._named[label] = (passages, ids)
        return known[1]

    def _missing(self, wanted: Mapping[str, Passage]) -> list[str]:
        dimension = self._known_dimension()
        if dimension is None:
            return list(wanted)
        collection = self._opened(dimension)
        ids = list(wanted)
        known: set[str] = set()
        for some in _batches(ids, _IDS_AT_ONCE):
            known |= collection.contents(frozenset(some)).keys()
        return [entry for entry in ids if entry not in known]

    def _known_dimension(self) -> int | None:
        """Return the dimension of the model's collection; None if the store has none yet."""
        if self._collection is not None:
            return self._collection[0]
        name = collection_name(self.embedder.name)
        return next((c.dimension for c in self.store.collections() if c.name == name), None)

    def _opened(self, dimension: int) -> VectorCollection:
        if self._collection is None or self._collection[0] != dimension:
            model = self.embedder.name
            opened = self.store.collection(collection_name(model), model, dimension)
            self._collection = dimension, opened
        return self._collection[1]


def collection_name(model: str) -> str:
    """Return the collection name of an embedder: readable and unique."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-._")[:30] or "model"
    return f"{readable}-{sha256(model.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def entry_id(project: str, label: Label, content: str) -> str:
    """Return the entry id for one text of one corpus of one project."""
    return sha256(
        f"{project}\0{label.value}\0{content}".encode("utf-8", "surrogatepass")
    ).hexdigest()


def _entry(
    name: str, label: Label, passage: Passage, row: NDArray[np.float32], project: str
) -> Entry:
    fields = Fields(project, label.value, passage.path, passage.language, passage.tags)
    payload = {
        "title": passage.title,
        "path": passage.path,
        "start": passage.start,
        "end": passage.end,
        "symbol": passage.symbol,
        "origin": passage.origin,
        "text": passage.text[:4_000],
    }
    return Entry(name, passage.content, row, fields, json.dumps(payload, ensure_ascii=False))


def _batches(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
