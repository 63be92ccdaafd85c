"""The package's static encoder as an `Embedder`. It is always available and free."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from agent.retrieval.index import PieceTerms, Terms
from agent.retrieval.ranking import LexicalQuery
from agent.search.text_format import name_in, without_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.embedding import StaticEncoder


class StaticEmbedder:
    """An `Embedder` over a `StaticEncoder`. A text without any known term gives a zero row."""

    def __init__(self, encoder: StaticEncoder) -> None:
        self._encoder = encoder

    @property
    def name(self) -> str:
        """Return a name that contains the fingerprint of the weights."""
        return f"static-{self._encoder.fingerprint}"

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "document"]
    ) -> NDArray[np.float32]:
        """Return float32 (len(texts), d), rows normalised or zero. Never raises ProviderError."""
        return await asyncio.to_thread(self.rows, texts, kind)

    def rows(self, texts: Sequence[str], kind: Literal["query", "document"]) -> NDArray[np.float32]:
        """Return the same rows as `embed`, without a thread."""
        terms = Terms()
        if kind == "query":
            rows = [self._encoder.query(_lexical(terms.count_hashes(_words(t)))) for t in texts]
            return np.array(rows, dtype=np.float32).reshape(len(texts), self._encoder.dimension)
        counted = [(terms.count_hashes(_words(t)), terms.count_hashes(name_in(t))) for t in texts]
        data = self._encoder.encode(_piece_terms(counted))
        rows8 = np.frombuffer(data, np.int8).reshape(len(texts), self._encoder.dimension)
        values = rows8.astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
        return np.asarray(values / np.maximum(lengths, 1e-9)[:, None], dtype=np.float32)


def _words(text: str) -> str:
    return without_labels(text)


def _lexical(counts: dict[int, int]) -> LexicalQuery:
    """Return a query of these term counts. Its other fields are empty."""
    hashes = np.array(sorted(counts), dtype=np.uint64)
    weights = np.array([np.log1p(counts[int(key)]) for key in hashes], dtype=np.float64)
    none = np.zeros(hashes.size)
    return LexicalQuery(("",) * hashes.size, hashes, weights, none, none, none)


def _piece_terms(counted: Sequence[tuple[dict[int, int], dict[int, int]]]) -> PieceTerms:
    pieces: list[int] = []
    hashes: list[int] = []
    counts: list[int] = []
    names: list[int] = []
    for number, (text, name) in enumerate(counted):
        keys = sorted(text.keys() | name.keys())
        pieces.extend([number] * len(keys))
        hashes.extend(keys)
        counts.extend(text.get(key, 0) for key in keys)
        names.extend(name.get(key, 0) for key in keys)
    vocabulary, terms = np.unique(np.array(hashes, dtype=np.uint64), return_inverse=True)
    return PieceTerms(
        len(counted),
        vocabulary,
        np.array(pieces, dtype=np.int64),
        terms.astype(np.int64),
        np.array(counts, dtype=np.int64),
        np.array(names, dtype=np.int64),
    )
