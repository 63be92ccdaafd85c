"""Entries, engines and the plainest possible search, for the contract of vector stores."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.search.stores import (
    Entry,
    VectorStore,
    open_store,
)
from agent.types.events import Event, Notice

DIMENSION = 8
MODEL = "test-model"
PACKAGES = {
    "sqlite": "sqlite3",
    "lancedb": "lancedb",
    "qdrant-memory": "qdrant_client",
    "qdrant-folder": "qdrant_client",
}


@dataclass
class Engine:
    """One engine at one place, that can be opened again and again."""

    name: str
    url: str
    folder: Path
    said: list[Event] = field(default_factory=list)

    def open(self) -> VectorStore:
        return open_store(self.url, self.said.append)

    @property
    def lasting(self) -> bool:
        return self.name != "qdrant-memory"

    @property
    def shared(self) -> bool:
        """Whether several processes may have it open."""
        return self.name not in ("qdrant-memory", "qdrant-folder")

    @property
    def notices(self) -> list[str]:
        return [event.message for event in self.said if isinstance(event, Notice)]


def require(package: str) -> None:
    """Skip where a package is not installed, fail where the environment says that it must be."""
    if importlib.util.find_spec(package) is not None:
        return
    if os.environ.get("PATCHSHOT_REQUIRE_STORES") == "1":
        pytest.fail(f"{package} is not installed, and PATCHSHOT_REQUIRE_STORES=1")
    pytest.skip(f"{package} is not installed")


def engine_at(name: str, folder: Path) -> Engine:
    """An engine that needs no server, in a new place."""
    require(PACKAGES[name])
    url = {
        "sqlite": f"sqlite://{folder}/vectors.db",
        "lancedb": f"lancedb://{folder}/lance",
        "qdrant-memory": "qdrant://:memory:",
        "qdrant-folder": f"qdrant://{folder}/qdrant",
    }[name]
    return Engine(name, url, folder)


def unit(*numbers: float) -> NDArray[np.float32]:
    """A vector of length 1 that points that way; zeros stay."""
    vector = np.zeros(DIMENSION, np.float32)
    vector[: len(numbers)] = numbers
    length = np.linalg.norm(vector)
    return vector / length if length else vector


def random_units(count: int, seed: int, dimension: int = DIMENSION) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def entry(
    name: str,
    vector: NDArray[np.float32] | None = None,
    *,
    content: str | None = None,
    project: str = "project",
    corpus: str = "code",
) -> Entry:
    chosen = unit(1.0) if vector is None else vector
    return Entry(name, content or f"hash of {name}", project, corpus, chosen)


def plainly(
    entries: Iterable[Entry], query: NDArray[np.float32], top_k: int, corpus: str | None = None
) -> list[tuple[str, float]]:
    """Ids and scores, found by looking at each entry."""
    found = [
        (one.id, float(one.vector.astype(float) @ query.astype(float)))
        for one in entries
        if corpus in (None, one.corpus)
    ]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:top_k]


def ids_of(found: Sequence[object]) -> list[str]:
    return [match.id for match in found]  # type: ignore[attr-defined]
