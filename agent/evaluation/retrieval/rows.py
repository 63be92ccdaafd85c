"""The files of `agent eval retrieval`: one row an instance, its answer beside it, and a note.

R.jsonl               `RetrievalRow`; this format must stay compatible
R.jsonl.budgets.jsonl `AnswerRow`: the gold answer, and the contexts at further budgets
R.jsonl.run.json      what the rows were made with; a later run goes on only with the same
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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


class RetrievalRow(_Row):
    """The result of retrieval for one instance, best first. `seconds` is for ranking and packing.

    `functions` has the 100 best. `context` has all lines that are shown, and no elided one.
    """

    instance_id: str = Field(min_length=1)
    files: tuple[str, ...]
    functions: tuple[str, ...]
    context: tuple[ContextRange, ...]
    context_tokens: int
    seconds: float


class BudgetContext(_Row):
    """The lines shown within a token budget, as in `RetrievalRow.context`."""

    budget: int
    context: tuple[ContextRange, ...]
    context_tokens: int


class AnswerRow(_Row):
    """The answer of an instance, and the same ranking packed into several budgets.

    `asked` is `GoldInstance.digest()`.
    """

    instance_id: str = Field(min_length=1)
    repo: str
    asked: str
    kinds: tuple[str, ...]
    gold: Gold
    budgets: tuple[BudgetContext, ...] = ()


def written_paths(output: Path) -> tuple[Path, Path]:
    """Return the file of rows, and the file of answers beside it."""
    return output, output.with_name(f"{output.name}.budgets.jsonl")


class RetrievalOutput:
    """The three files of one run, locked while it is open (`open_output`).

    A killed run leaves whole lines, and the next one goes on after them. With `restart`, earlier
    rows are ignored, and removed by `begin`.
    """

    def __init__(self, path: Path, note: int, made_with: Mapping[str, Any], *, restart: bool):
        self.path = path
        self._beside = written_paths(path)[1]
        self._note = note
        self._made_with = made_with
        self._files: tuple[AppendFile, AppendFile] | None = None
        self.rows: dict[str, RetrievalRow] = {}
        self.answers: dict[str, AnswerRow] = {}
        if not restart:
            self._check_note()
            self.rows = _read(path, RetrievalRow)
            self.answers = _read(self._beside, AnswerRow)

    def has(self, instance_id: str) -> bool:
        """Return whether an instance was measured."""
        return instance_id in self.rows and instance_id in self.answers

    def begin(self) -> None:
        """Open the files for new rows, once a worker has started with these settings."""
        if self._files is not None:
            return
        with writing(self.path):
            for path, rows in ((self.path, self.rows), (self._beside, self.answers)):
                replace_file(path, [_line(row) for row in rows.values()])
            self._files = AppendFile(self.path), AppendFile(self._beside)
            os.ftruncate(self._note, 0)
            os.pwrite(self._note, (json.dumps(self._made_with, indent=2) + "\n").encode(), 0)

    def append(self, row: RetrievalRow, answer: AnswerRow) -> None:
        """Add an instance, after `begin`."""
        assert self._files is not None
        with writing(self.path):
            self._files[1].append(_line(answer), sync=False)
            self._files[0].append(_line(row), sync=False)
        self.rows[row.instance_id] = row
        self.answers[row.instance_id] = answer

    def close(self, order: Sequence[str]) -> None:
        """Sort the rows in this order of instances; other rows come first."""
        if self._files is not None:
            for file in self._files:
                file.close()
            position = {name: number for number, name in enumerate(order)}
            with writing(self.path):
                for path, rows in ((self.path, self.rows), (self._beside, self.answers)):
                    names = sorted(rows, key=lambda name: position.get(name, -1))
                    replace_file(path, [_line(rows[name]) for name in names])

    def _check_note(self) -> None:
        if not self.path.is_file() or not self.path.stat().st_size:
            return
        try:
            before = json.loads(os.pread(self._note, os.fstat(self._note).st_size, 0))
        except ValueError:
            before = None
        changed = _differences(before, self._made_with)
        if changed:
            raise ConfigurationError(
                f"--output {self.path}: its rows were made with other settings ({changed}); "
                "--restart to measure again, or name another file"
            )


@contextmanager
def open_output(
    path: Path, made_with: Mapping[str, Any], order: Sequence[str], *, restart: bool
) -> Iterator[RetrievalOutput]:
    """Open the files of `--output`, and sort them in `order` at the end.

    Raises ConfigurationError for a file of something else, other settings, or another run that
    writes to it.
    """
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"--output {path}: not a file; name one to write rows to")
    note_path = path.with_name(f"{path.name}.run.json")
    with writing(path):
        note = open_locked(note_path)
    if note is None:
        raise ConfigurationError(
            f"--output {path}: another run writes to it; wait for that, or name another file"
        )
    try:
        output = RetrievalOutput(path, note, made_with, restart=restart)
        try:
            yield output
        finally:
            output.close(order)
    finally:
        if not os.fstat(note).st_size:  # a run without rows leaves no note
            note_path.unlink(missing_ok=True)
        os.close(note)


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Turn an OSError into a ConfigurationError that names `--output`."""
    try:
        yield
    except OSError as error:
        advice = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "; free some space, then give the same command again: it goes on from there"
        raise ConfigurationError(f"--output {output}: {error.strerror or error}{advice}") from None


_R = TypeVar("_R", RetrievalRow, AnswerRow)


def _read(path: Path, kind: type[_R]) -> dict[str, _R]:
    """Read the whole lines of a file; a torn last line is dropped."""
    if not path.exists():
        return {}
    with writing(path):
        lines = path.read_bytes().split(b"\n")
    rows: dict[str, _R] = {}
    for number, line in enumerate(lines, start=1):
        try:
            if line:
                row = kind.model_validate_json(line)
                rows[row.instance_id] = row
        except ValidationError:
            if number == len(lines) and line.startswith(b'{"instance_id":"'):
                continue
            raise ConfigurationError(
                f"--output {path}:{number}: not a row of this command; name another file, or "
                "--restart to overwrite it"
            ) from None
    return rows


def _line(row: BaseModel) -> bytes:
    return row.model_dump_json().encode() + b"\n"


_SETTINGS = (
    "preset", "embed", "embed_model", "prefilter", "filename_bonus", "context_tokens",
    "context_reserve", "max_chunks", "model", "corpora",
)  # fmt: skip
"""The settings that a row depends on. The tokenizer of `model` counts the context."""

_CODE = ("retrieval", "repository", "wiring", "search", "shared", "run", "evaluation/retrieval")


def provenance(settings: Settings) -> Mapping[str, Any]:
    """Return everything that rows depend on: settings, embedder and digest of the code.

    Raises ConfigurationError if the requested embedder is not available.
    """
    values = {name: getattr(settings, name) for name in _SETTINGS}
    corpora = sorted(settings.corpora)
    embedder = embedder_name(settings)
    return {**values, "corpora": corpora, "embedder": embedder, "code": code_digest()}


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


def code_digest() -> str:
    """Return the SHA-256 of the source files and weights that read, rank and pack, 16 hex."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for name in _CODE:
        for file in sorted((root / name).rglob("*")):
            if file.suffix in (".py", ".npz"):
                digest.update(f"{file.relative_to(root)}\0".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _differences(before: object, now: Mapping[str, Any]) -> str:
    if not isinstance(before, dict) or not before:
        return "there is no note of them"
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return ", ".join(f"{name} {before.get(name)!r}, now {now.get(name)!r}" for name in names)
