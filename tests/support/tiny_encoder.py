"""A made encoder of two layers, small enough to train in a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTH = 64
HEADS = 2
VOCABULARY = 60
POSITIONS = 24
LAYERS = 2


def tiny_weights(seed: int = 1) -> Mapping[str, NDArray[np.float32]]:
    """Random weights of the shapes that a published checkpoint has."""
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> NDArray[np.float32]:
        return random.normal(0, 0.2, shape).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": matrix(VOCABULARY, WIDTH),
        "embeddings.position_embeddings.weight": matrix(POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": matrix(2, WIDTH),
    }
    shapes: Mapping[str, tuple[int, int]] = {
        "attention.self.query": (WIDTH, WIDTH),
        "attention.self.key": (WIDTH, WIDTH),
        "attention.self.value": (WIDTH, WIDTH),
        "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (4 * WIDTH, WIDTH),
        "output.dense": (WIDTH, 4 * WIDTH),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        for part, shape in shapes.items():
            weights[f"{name}.{part}.weight"] = matrix(*shape)
            weights[f"{name}.{part}.bias"] = matrix(shape[0])
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
    for name in norms:
        weights[f"{name}.weight"] = 1 + matrix(WIDTH)
        weights[f"{name}.bias"] = matrix(WIDTH)
    return weights


class WordTokenizer:
    """Each word an id by its letters: what training needs of a tokenizer."""

    def __call__(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """At most so many ids a text, and never none."""
        return [[1, *(_id(word) for word in text.split())][:most] for text in texts]


def _id(word: str) -> int:
    return 2 + sum(word.encode()) % (VOCABULARY - 2)
