"""Vectors on disk between runs, as records of raw float32 bytes.

The file may be damaged or forged: nothing is unpickled, and a record that cannot be a vector is
ignored. `agent.shared.cache` describes what happens to a file that cannot be read or written.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.shared.cache import RecordStore, record_format

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.embedding.protocol import EmbeddingKind
    from agent.types.protocols import Reporter

_FORMAT = record_format("embedding cache", 0x50535643, 2)  # "PSVC"; version 1 had its own table


def vector_key(embedder: str, kind: EmbeddingKind, text: str) -> bytes:
    """Return 32 bytes that identify one vector: hash of embedder name, kind and text."""
    digest = hashlib.sha256()
    for part in (embedder, kind, text):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))  # separates the parts
        digest.update(data)
    return digest.digest()


class VectorCache:
    """A persistent map from `vector_key` to a float32 vector. Thread-safe; never raises.

    `max_bytes` limits the size of the vectors; `close` removes the least recently used. `clock`
    returns seconds since the epoch.
    """

    def __init__(
        self,
        path: Path,
        reporter: Reporter,
        max_bytes: int = 512 * 1024 * 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._records = RecordStore(
            path, reporter=reporter, limit=max_bytes, file_format=_FORMAT, clock=clock
        )

    def get(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the known vectors, each of shape (d,)."""
        vectors = ((key, _vector(data)) for key, data in self._records.get(keys).items())
        return {key: vector for key, vector in vectors if vector is not None}

    def put(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Store these vectors, each of shape (d,)."""
        if vectors:
            self._records.put(
                (key, np.ascontiguousarray(vector, dtype="<f4").tobytes())
                for key, vector in vectors.items()
            )

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        self._records.close()


def _vector(data: bytes) -> NDArray[np.float32] | None:
    """Return the vector of a record; None if it cannot be one."""
    if not data or len(data) % 4:
        return None
    vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
    return vector if bool(np.isfinite(vector).all()) else None
