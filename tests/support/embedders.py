"""A deterministic `BatchEmbedder` that can be told to fail, wait or answer something else."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agent.retrieval.embedding import EmbeddingKind

DIMENSION = 32


def hashed_vector(text: str) -> NDArray[np.float32]:
    """The sum of one fixed direction for each word, shape (DIMENSION,), not normalised."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    for word in text.split():
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        vector += np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
    return vector


@dataclass
class FakeBatchEmbedder:
    """A `BatchEmbedder` on hashed vectors.

    `on_call` may raise, or give another answer than the hashed vectors (None: those). `seconds`
    says how long a call takes. `calls` are the texts of each call, `most_at_once` the largest
    number of calls that ran at the same time.
    """

    on_call: Callable[[Sequence[str]], NDArray[np.float32] | None] | None = None
    max_batch: int = 4
    seconds: Callable[[Sequence[str]], float] = lambda _texts: 0.0
    name: str = "fake"
    calls: list[tuple[str, ...]] = field(default_factory=list)
    most_at_once: int = 0
    _running: int = 0

    async def embed_batch(
        self, texts: Sequence[str], *, kind: EmbeddingKind
    ) -> NDArray[np.float32]:
        self.calls.append(tuple(texts))
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        try:
            await asyncio.sleep(self.seconds(texts))
            answer = self.on_call(texts) if self.on_call is not None else None
        finally:
            self._running -= 1
        return np.stack([hashed_vector(text) for text in texts]) if answer is None else answer
