"""The file of `agent eval retrieval`: one JSON row an instance, with its answer.

A later run with the same settings, budgets and program goes on after the rows that are there.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.errors import ConfigurationError
from agent.evaluation.retrieval.gold import Gold
from agent.llm import without_credentials
from agent.shared.files import AppendFile, open_locked, replace_file
from agent.wiring import embedding_endpoint, retrieval_options

if TYPE_CHECKING:
    from agent.settings import Settings


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ContextRange(_Row):
    """A range of lines of a file, 1-based and inclusive."""

    path: str
    start: int
    end: int


class BudgetContext(_Row):
    """The lines shown within a token budget, as in `RetrievalRow.context`."""

    budget: int
    context: tuple[ContextRange, ...]
    context_tokens: int


class RetrievalRow(_Row):
    """The result of retrieval for one instance, best first. `seconds` is for ranking and packing.

    `functions` has the 100 best. `context` has all lines that are shown, and no elided one.
    `budgets` has the same ranking packed into further budgets. `asked` is `GoldInstance.digest()`
    and `made_with` what `made_with` returns.
    """

    instance_id: str = Field(min_length=1)
    files: tuple[str, ...]
    functions: tuple[str, ...]
    context: tuple[ContextRange, ...]
    context_tokens: int
    seconds: float
    repo: str
    asked: str
    kinds: tuple[str, ...]
    gold: Gold
    budgets: tuple[BudgetContext, ...] = ()
    made_with: str = ""


class RetrievalOutput:
    """The rows of one run, locked while it is open (`open_output`).

    A killed run leaves whole lines, and the next one goes on after them. With `restart`, earlier
    rows are ignored, and removed by `begin`.
    """

    def __init__(self, path: Path, made_with: str, *, restart: bool) -> None:
        self.path = path
        self._made_with = made_with
        self._file: AppendFile | None = None
        self.rows = {} if restart else _read(path, made_with)

    def has(self, instance_id: str) -> bool:
        """Return whether an instance was measured."""
        return instance_id in self.rows

    def begin(self) -> None:
        """Open the file for new rows, once a worker has started with these settings."""
        if self._file is None:
            with _writing(self.path):
                if not self.rows:
                    os.truncate(self.path, 0)
                self._file = AppendFile(self.path)

    def append(self, row: RetrievalRow) -> None:
        """Add an instance, after `begin`."""
        assert self._file is not None
        row = row.model_copy(update={"made_with": self._made_with})
        with _writing(self.path):
            self._file.append(_line(row), sync=False)
        self.rows[row.instance_id] = row

    def close(self, order: Sequence[str]) -> None:
        """Sort the rows in this order of instances; other rows come first."""
        if self._file is not None:
            self._file.close()
            position = {name: number for number, name in enumerate(order)}
            names = sorted(self.rows, key=lambda name: position.get(name, -1))
            with _writing(self.path):
                replace_file(self.path, [_line(self.rows[name]) for name in names])


@contextmanager
def open_output(
    path: Path, made_with: str, order: Sequence[str], *, restart: bool
) -> Iterator[RetrievalOutput]:
    """Open the file of `--output`, and sort its rows in `order` at the end.

    Raises ConfigurationError for a file of something else, other settings, or another run that
    writes to it.
    """
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"--output {path}: not a file; name one to write rows to")
    with _writing(path):
        handle = open_locked(path)
    if handle is None:
        raise ConfigurationError(
            f"--output {path}: another run writes to it; wait for that, or name another file"
        )
    try:
        output = RetrievalOutput(path, made_with, restart=restart)
        try:
            yield output
        finally:
            output.close(order)
    finally:
        if not path.stat().st_size:  # a run without rows leaves nothing
            path.unlink()
        os.close(handle)


@contextmanager
def _writing(output: Path) -> Iterator[None]:
    """Turn an OSError into a ConfigurationError that names `--output`."""
    try:
        yield
    except OSError as error:
        advice = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "; free some space, then give the same command again: it goes on from there"
        raise ConfigurationError(f"--output {output}: {error.strerror or error}{advice}") from None


def _read(path: Path, made_with: str) -> dict[str, RetrievalRow]:
    """Read the whole lines of a file; a torn last line is dropped. Raises ConfigurationError."""
    with _writing(path):
        lines = path.read_bytes().split(b"\n")
    rows: dict[str, RetrievalRow] = {}
    for number, line in enumerate(lines, start=1):
        if not line or (number == len(lines) and line.startswith(b'{"instance_id":"')):
            continue
        try:
            row = RetrievalRow.model_validate_json(line)
        except ValidationError:
            raise ConfigurationError(
                f"--output {path}:{number}: not a row of this command; name another file, or "
                "--restart to overwrite it"
            ) from None
        if row.made_with != made_with:
            raise ConfigurationError(
                f"--output {path}: its rows were made with other settings, other budgets or "
                "another version; --restart to measure again, or name another file"
            )
        rows[row.instance_id] = row
    return rows


def _line(row: BaseModel) -> bytes:
    return row.model_dump_json().encode() + b"\n"


_SETTINGS = (
    "preset", "embed", "embed_model", "prefilter", "filename_bonus", "context_tokens",
    "context_reserve", "max_chunks", "model", "corpora",
)  # fmt: skip
"""The settings that a row depends on. The tokenizer of `model` counts the context."""

_CODE = ("retrieval", "repository", "wiring", "search", "shared", "run", "evaluation/retrieval")


def made_with(settings: Settings, budgets: Sequence[int]) -> str:
    """Return the SHA-256, 16 hex digits, of what rows depend on: settings, budgets, embedder, and
    the source files and weights that read, rank and pack.

    Raises ConfigurationError if the requested embedder is not available.
    """
    values = settings.model_dump(mode="json", include=set(_SETTINGS))
    values["corpora"] = sorted(settings.corpora)
    inputs = [values, list(budgets), embedder_name(settings)]
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode())
    root = Path(__file__).resolve().parents[2]
    for name in _CODE:
        for file in sorted((root / name).rglob("*")):
            if file.suffix in (".py", ".npz"):
                digest.update(f"{file.relative_to(root)}\0".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def embedder_name(settings: Settings) -> str | None:
    """Return the model or server that embeds, without credentials, None if none does.

    Raises ConfigurationError.
    """
    if not retrieval_options(settings).embedding:
        return None
    if settings.embed == "local":
        from agent.retrieval.embedding.local import LocalEmbedder

        return LocalEmbedder().name
    chosen = embedding_endpoint(settings)
    if chosen is None:
        return None
    model = chosen.model or "a model of the server's list"
    return f"{model} at {without_credentials(chosen.base_url)} ({chosen.kind})"
