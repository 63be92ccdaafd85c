"""Small made models of the kinds that ship with the package: trees at random, vectors for words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index.words import term_hash
from agent.retrieval.ranking.ranker import Ensemble, Ranker
from agent.retrieval.ranking.signals import FILE_NAMES, PIECE_NAMES
from training.writing import write_ranker, write_static

if TYPE_CHECKING:
    from numpy.typing import NDArray


def random_ensemble(
    names: Sequence[str], seed: int, *, trees: int = 5, depth: int = 3, slope: float = 8.0
) -> Ensemble:
    """Complete trees that split at random features and values in 0..1."""
    rng = np.random.default_rng(seed)
    feature: list[int] = []
    threshold: list[float] = []
    right: list[int] = []
    value: list[float] = []

    def add(level: int) -> int:
        number = len(feature)
        leaf = level == 0
        feature.append(-1 if leaf else int(rng.integers(len(names))))
        threshold.append(0.0 if leaf else float(rng.random()))
        value.append(float(rng.normal()))
        right.append(0)
        if not leaf:
            add(level - 1)
            right[number] = add(level - 1) - number
        return number

    roots = [add(depth) for _ in range(trees)]
    return Ensemble(
        tuple(names),
        np.array(roots, np.int32),
        np.array(feature, np.int32),
        np.array(threshold, np.float32),
        np.array(right, np.int32),
        np.array(value),
        np.array(slope),
    )


def random_ranker(seed: int = 1, trees: int = 5) -> Ranker:
    """A ranker over the real features."""
    return Ranker(
        random_ensemble(FILE_NAMES, seed, trees=trees),
        random_ensemble(PIECE_NAMES, seed + 1, trees=trees),
    )


def static_bytes(
    vectors: Mapping[str, Sequence[float]], weights: tuple[float, float] = (1.0, 1.0)
) -> bytes:
    """The file of an encoder with these vectors by term, and query and document weights for all."""
    table = {term_hash(term): row for term, row in vectors.items()}
    hashes = np.array(sorted(table), np.uint64)
    rows = np.array([table[int(h)] for h in hashes], np.float32)
    query, document = (np.full(hashes.size, weight, np.float32) for weight in weights)
    return write_static(hashes, rows, query, document)


def write_models(folder: Path, *, ranker: bool = True, static: bool = True) -> Path:
    """A folder with a random ranker and an encoder that knows `redirect` and `timeout` as one."""
    folder.mkdir(exist_ok=True)
    if ranker:
        (folder / "ranker.json").write_text(write_ranker(random_ranker(trees=80)))  # all groups
    if static:
        words: Mapping[str, Sequence[float]] = {
            "redirect": (1.0, 0.1), "timeout": (1.0, 0.0), "cooki": (0.0, 1.0),
        }  # fmt: skip
        (folder / "static.npz").write_bytes(static_bytes(words))
    return folder


def rows_at_random(names: Sequence[str], count: int, seed: int) -> NDArray[np.float32]:
    """(count, len(names)) in 0..1."""
    return np.random.default_rng(seed).random((count, len(names)), dtype=np.float32)
