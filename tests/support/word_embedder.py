"""Deterministic embedders: word overlap as cosine, and ways of failing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agent.errors import ProviderUnreachable

Kind = Literal["query", "document"]
_WORD = re.compile(r"[a-z]+")


@dataclass
class WordEmbedder:
    """Each word adds to the dimension its hash names, so that texts sharing words are close.

    `blank` says of which texts the row is zero, as if they could not be embedded.
    """

    dimension: int = 256
    blank: Callable[[str], bool] = lambda _text: False
    calls: list[tuple[Kind, tuple[str, ...]]] = field(default_factory=list)
    name: str = "words"

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> NDArray[np.float32]:
        self.calls.append((kind, tuple(texts)))
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            if not self.blank(text):
                self._fill(row, text)
        return rows

    def _fill(self, row: NDArray[np.float32], text: str) -> None:
        for word in _WORD.findall(text.lower()):
            row[int(hashlib.sha256(word.encode()).hexdigest(), 16) % self.dimension] += 1.0
        length = float(np.linalg.norm(row))
        if length:
            row /= length


class UnreachableEmbedder:
    """Fails as a server that is down does."""

    name = "unreachable"

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> NDArray[np.float32]:
        raise ProviderUnreachable("embedding server does not answer; check its address")
