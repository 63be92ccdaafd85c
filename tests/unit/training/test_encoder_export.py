from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from agent.errors import PatchshotError
from agent.training import encoder_export
from agent.training.encoder_export import (
    Figures,
    ModelCard,
    Training,
    build,
    export,
    quantise,
)
from tests.support.tiny_encoder import HEADS, tiny_weights

_TRAINING = Training(
    pairs={"a/b": 3},
    issues={},
    development=("c/d",),
    options={"seed": 7},
    steps=2,
    chosen=1,
    pairs_seen=6,
    minutes=0.1,
    untuned=Figures(recall=0.5, reciprocal_rank=0.25),
    tuned=Figures(recall=0.75, reciprocal_rank=0.5),
)


@pytest.mark.parametrize("axis", [0, 1])
def test_integers_are_within_half_a_step(axis: int) -> None:
    values = np.random.default_rng(3).normal(size=(20, 30)).astype(np.float32)
    values[0] = values[:, 0] = 0
    integers, scales = quantise(values, axis, 127)
    assert integers.dtype == np.int8
    assert scales.shape == ((1, 30) if axis == 0 else (20, 1))
    assert np.abs(integers).max() == 127
    assert np.all(np.abs(integers * scales - values) <= scales * 0.501)


def test_the_exported_network_gives_the_vectors_of_the_float_one(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from agent.training.encoder_model import as_tensors, encode_lists, pad

    export(tiny_weights(), HEADS, _TRAINING, tmp_path)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    lists = [[1, 5, 9], [7, 2], [3, 3, 8, 2, 40, 11]]
    ids, mask = (tensor.numpy() for tensor in pad(lists))
    hidden = session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
    assert hidden.shape == (3, 6, 64)
    pooled = (hidden * mask[:, :, None]).sum(axis=1)
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    with torch.no_grad():
        exact = encode_lists(as_tensors(tiny_weights()), lists, group=3).numpy()
    assert float((pooled * exact).sum(axis=1).min()) > 0.999


def test_the_same_weights_give_the_same_file_and_a_card_that_names_it(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    cards = [export(tiny_weights(), HEADS, _TRAINING, tmp_path / name) for name in "ab"]
    data = (tmp_path / "a" / "model.onnx").read_bytes()
    assert data == (tmp_path / "b" / "model.onnx").read_bytes()
    stored = ModelCard.model_validate_json((tmp_path / "b" / "model.json").read_bytes())
    assert stored == cards[0] == cards[1]
    assert (stored.sha256, stored.bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    assert stored.training == _TRAINING


def test_other_weights_give_another_file() -> None:
    pytest.importorskip("onnx")
    first, second = (build(tiny_weights(s), HEADS).SerializeToString() for s in (1, 2))
    assert first != second


def test_a_file_too_large_for_the_repository_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    monkeypatch.setattr(encoder_export, "MAX_BYTES", 1000)
    with pytest.raises(PatchshotError, match=r"the limit is 1,000"):
        export(tiny_weights(), HEADS, _TRAINING, tmp_path)
    assert list(tmp_path.iterdir()) == []
