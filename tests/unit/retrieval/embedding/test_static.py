from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.retrieval.embedding import (
    StaticEncoder,
    read_static,
)
from agent.retrieval.embedding import static as module
from agent.retrieval.index.contents import PieceTerms
from training.writing import write_static


def encoder_of(folder: Path, data: bytes, name: str = "s.npz") -> StaticEncoder:
    (folder / name).write_bytes(data)
    encoder = read_static(folder / name)
    assert encoder is not None
    return encoder


def piece_terms(rng: np.random.Generator, hashes: NDArray[np.uint64], size: int) -> PieceTerms:
    """Random terms in random pieces, some without any; ordered by term."""
    vocabulary = np.sort(hashes)
    pairs = [(t, p) for t in range(vocabulary.size) for p in range(size) if rng.random() < 0.4]
    terms, pieces = (np.array(c, np.int64) for c in zip(*pairs, strict=True))
    counts, names = (rng.integers(0, 4, len(pairs)).astype(np.int64) for _ in range(2))
    return PieceTerms(size, vocabulary, pieces, terms, counts, names)


def slow_rows(encoder: StaticEncoder, terms: PieceTerms) -> NDArray[np.float64]:
    """By the definition, one term of one piece after the other, in float64."""
    known = {int(h): i for i, h in enumerate(encoder.hashes)}
    rows = np.zeros((terms.size, encoder.dimension))
    for piece, term, count, named in zip(
        terms.pieces, terms.terms, terms.counts, terms.name_counts, strict=True
    ):
        i = known.get(int(terms.vocabulary[term]))
        if i is not None:
            weight = np.log1p(count) + module.NAME_BOOST * named
            vector = encoder.vectors[i].astype(float) * float(encoder.scales[i])
            rows[piece] += weight * float(encoder.document_weights[i]) * vector
    return rows


def random_encoder(folder: Path, rng: np.random.Generator, terms: int = 40) -> StaticEncoder:
    hashes = np.unique(rng.integers(0, 2**63, terms).astype(np.uint64))
    vectors = rng.normal(size=(hashes.size, 8)).astype(np.float32)
    first, second = (rng.random(hashes.size).astype(np.float32) for _ in range(2))
    return encoder_of(folder, write_static(hashes, vectors, first, second))


@pytest.mark.parametrize("at_once", [3, 1_000])
def test_a_piece_is_the_weighted_sum_of_its_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    rng = np.random.default_rng(5)
    encoder = random_encoder(tmp_path, rng)
    unknown = rng.integers(0, 2**63, 10).astype(np.uint64)
    terms = piece_terms(rng, np.concatenate([encoder.hashes[::2], unknown]), 12)
    found = np.frombuffer(encoder.encode(terms), np.int8).reshape(12, 8).astype(float)
    wanted = slow_rows(encoder, terms)
    top = np.abs(wanted).max(axis=1, keepdims=True)
    np.testing.assert_allclose(found, wanted * 127 / np.maximum(top, 1e-12), atol=0.51)
    assert np.abs(found).max(axis=1).tolist() == [127.0 if t else 0.0 for t in top[:, 0]]
