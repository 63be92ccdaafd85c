"""The corpus `vectors`: texts that another program embedded, from a folder of its vectors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import SemanticIndexError, SemanticQueryError, StoreError
from agent.search.passages import CorpusUnavailable, Label, Passage
from agent.search.precomputed import cosine_similarity, load_vectors, text_of
from agent.search.stores import score_of
from agent.search.text_format import MAX_TEXT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.search.precomputed import SemanticSettings, VectorIndex
    from agent.types.protocols import Reporter, Snapshot

OVER_RETRIEVE = 5
"""Multiple of the wanted results to request, because vectors without a text are dropped."""


@dataclass(slots=True)
class VectorSource:
    """The `CorpusSource` of a folder, which also compares its vectors with a query's.

    `agent`: whose tags, threshold and number of results count; None sets no limits. `embedded`:
    whether the embedder of the queries may be the model that made the vectors.
    """

    folder: Path
    packed: Path
    reporter: Reporter
    agent: SemanticSettings | None = None
    embedded: bool = True
    _index: VectorIndex | None = field(init=False, default=None)
    _rows: dict[str, int] = field(init=False, default_factory=dict)

    @property
    def label(self) -> Label:
        """Return the label `[vectors]`."""
        return Label.VECTORS

    def passages(self, snapshot: Snapshot, cancel: threading.Event) -> Sequence[Passage]:
        """Return the vectors that have a text and all tags of the agent, by id.

        Raises CorpusUnavailable if there is none.
        """
        del snapshot, cancel
        try:
            index = load_vectors(self.folder, self.reporter, cache=self.packed, strict=True)
        except SemanticIndexError as error:
            raise CorpusUnavailable(str(error)) from None
        wanted = frozenset(self.agent.filter_by_tags if self.agent else ())
        found = [
            passage
            for row, meta in sorted(index.metas.items())
            if wanted <= set(meta.tags) and (passage := self._passage(index, row))
        ]
        if not found:
            raise CorpusUnavailable(f"no vector of {self.folder} has a text and the wanted tags")
        self._index = index
        self._rows = {name: row for row, name in enumerate(index.ids)}
        return tuple(found)

    async def search(
        self,
        label: Label,
        passages: Sequence[Passage],
        queries: NDArray[np.float32],
        top_k: int,
    ) -> list[list[tuple[int, float]]]:
        """Return for each query the numbers of passages and their scores, best first.

        Raises StoreError if the vectors cannot be compared with the queries.
        """
        del label
        index = self._index
        if not self.embedded or index is None:
            raise StoreError(
                "no embedder is configured; set PATCHSHOT_EMBED_MODEL to the model of the vectors"
            )
        numbers = {passage.origin: number for number, passage in enumerate(passages)}
        agent = self.agent
        try:
            found = await asyncio.to_thread(
                lambda: index.search(
                    queries,
                    top_k * OVER_RETRIEVE,
                    at_least=agent.similarity_threshold if agent else -1.0,
                    tags=agent.filter_by_tags if agent else (),
                )
            )
        except SemanticQueryError as error:
            raise StoreError(str(error)) from None
        return [
            [(numbers[one.id], score_of(one.score)) for one in own if one.id in numbers]
            for own in found
        ]

    async def similarities(
        self, label: Label, passages: Sequence[Passage], query: NDArray[np.float32]
    ) -> list[float]:
        """Return `score_of` the cosine of each passage with a query (d,); 0 if a search cannot
        compare them.
        """
        del label
        index = self._index
        if not self.embedded or index is None or query.size != index.dimension:
            return [0.0] * len(passages)
        rows = [self._rows[passage.origin] for passage in passages]
        return [score_of(cosine_similarity(index.vectors[row], query)) for row in rows]

    def _passage(self, index: VectorIndex, row: int) -> Passage | None:
        """Return the passage of a vector; None if it has no text."""
        text = text_of(index, row, self.reporter)[:MAX_TEXT]
        if not text.strip():
            return None
        meta = index.metas[row]
        path = meta.metadata.get("path")
        return Passage(
            Label.VECTORS,
            index.ids[row],
            text,
            path=path if isinstance(path, str) else "",
            origin=index.ids[row],
            tags=meta.tags,
        )
