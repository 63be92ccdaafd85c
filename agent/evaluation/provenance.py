"""What rows were made with, kept beside them: nothing goes on from another retriever's rows."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agent.errors import ConfigurationError
from agent.evaluation.rows import writing
from agent.llm.endpoint import without_credentials
from agent.services.embedding import embedding_endpoint
from agent.services.retrieval import retrieval_options

if TYPE_CHECKING:
    from agent.settings import Settings

_SETTINGS = (
    "preset", "without", "embed", "embed_model", "embed_weights", "prefilter", "filename_bonus",
    "context_tokens", "context_reserve", "max_chunks", "model", "corpora",
)  # fmt: skip
"""What decides about a row; the model, because its tokenizer counts the context."""

_CODE = (
    "retrieval", "context", "repository", "problem.py", "tokens.py", "services", "corpora",
    "corpora/history",
    "evaluation/measure.py", "models/encoder/model.json", "models/ranker.npz", "models/static.npz",
)  # fmt: skip


def provenance(settings: Settings) -> Mapping[str, Any]:
    """The settings that decide about rows, what embeds, and a digest of the code that decides.

    Raises ConfigurationError where the embedder that is asked for cannot be had.
    """
    values = {name: getattr(settings, name) for name in _SETTINGS}
    values |= {name: sorted(values[name]) for name in ("without", "corpora")}
    return {**values, "embedder": embedder_name(settings), "code": code_digest()}


def embeds(settings: Settings) -> bool:
    """Whether the preset has a use for embeddings."""
    return retrieval_options(settings).embedding


def embedder_name(settings: Settings) -> str | None:
    """Which network or server embeds, without what a URL may carry of credentials; None: none does.

    Raises ConfigurationError.
    """
    if not embeds(settings):
        return None
    if settings.embed == "local":
        from agent.retrieval.local_embedder import LocalEmbedder, local_model

        return LocalEmbedder(local_model(settings.embed_weights)).name
    chosen = embedding_endpoint(settings)
    if chosen is None:
        return None
    model = chosen.model or "a model of the server's list"
    return f"{model} at {without_credentials(chosen.base_url)} ({chosen.kind})"


def code_digest() -> str:
    """SHA-256 of the source files that reading, ranking and packing consist of, 16 hex digits."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for name in _CODE:
        part = root / name
        for file in [part] if part.is_file() else sorted(part.glob("*.py")):
            digest.update(f"{name}/{file.name}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class RunNote:
    """The note beside `output`, locked for as long as this is open: one run writes rows at a time.

    The kernel lets go of the lock when the process ends, however it ends. A context manager.
    """

    def __init__(self, output: Path) -> None:
        """Raises ConfigurationError where another run writes there, or nothing can be written."""
        self._output = output
        self._path = output.with_name(f"{output.name}.run.json")
        with writing(self._path):
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with writing(self._path):
                self._lock()
        except BaseException:
            os.close(self._handle)
            raise

    def check(self, current: Mapping[str, Any]) -> None:
        """Refuse to go on from rows that were made with something else.

        Raises ConfigurationError. Rows without a note (of another program) are refused too.
        """
        if not self._output.is_file() or not self._output.stat().st_size:
            return
        changed = _differences(self._read(), current)
        if changed:
            raise ConfigurationError(
                f"--output {self._output}: its rows were made with other settings ({changed}); "
                "--restart to measure again, or name another file"
            )

    def write(self, current: Mapping[str, Any]) -> None:
        """Note what the rows are made with. Raises ConfigurationError."""
        data = (json.dumps(current, indent=2) + "\n").encode()
        if data == self._bytes():
            return
        with writing(self._path):
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, data, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not os.fstat(self._handle).st_size:  # a run that came to nothing leaves nothing
            self._path.unlink(missing_ok=True)
        os.close(self._handle)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.path.samestat(self._path.stat(), os.fstat(self._handle))
        except (BlockingIOError, FileNotFoundError):
            mine = False
        if not mine:  # or its last holder has just removed it
            raise ConfigurationError(
                f"--output {self._output}: another run writes to it; wait for that, or name "
                "another file"
            )

    def _bytes(self) -> bytes:
        return os.pread(self._handle, os.fstat(self._handle).st_size, 0)

    def _read(self) -> Mapping[str, Any]:
        try:
            value = json.loads(self._bytes())
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if not before:
        return "nothing says which"
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return ", ".join(f"{name} {before.get(name)!r}, now {now.get(name)!r}" for name in names)
