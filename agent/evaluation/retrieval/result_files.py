"""The files of `agent eval retrieval`: rows, contexts at further budgets, and a note.

A later run continues from the rows if the note has the same settings and the same code. The format
of the rows must stay compatible.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.errors import ConfigurationError
from agent.llm import without_credentials
from agent.shared.files import AppendFile, open_locked, replace_file
from agent.wiring import embedding_endpoint, retrieval_options

if TYPE_CHECKING:
    from agent.settings import Settings

_BEGIN = b'{"instance_id":"'  # the first bytes of every row


class ContextRange(BaseModel):
    """A range of lines of a file, 1-based and inclusive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    start: int
    end: int


class RetrievalRow(BaseModel):
    """The result of retrieval for one instance, best first. `seconds` is for ranking and packing.

    `functions` has the 100 best. `context` has all lines that are shown, and no elided one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    instance_id: str = Field(min_length=1)
    files: tuple[str, ...]
    functions: tuple[str, ...]
    context: tuple[ContextRange, ...]
    context_tokens: int
    seconds: float


class BudgetContext(BaseModel):
    """The lines shown within a token budget, as in `RetrievalRow.context`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget: int
    context: tuple[ContextRange, ...]
    context_tokens: int


class BudgetRow(BaseModel):
    """The same ranking packed into several budgets. `asked` is `GoldInstance.digest()`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    instance_id: str = Field(min_length=1)
    budgets: tuple[BudgetContext, ...]
    asked: str = ""


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Turn an OSError into a ConfigurationError that names `--output`."""
    try:
        yield
    except OSError as error:
        kept = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            kept = "; free some space, then give the same command again: it goes on from there"
        raise ConfigurationError(f"--output {output}: {error.strerror or error}{kept}") from None


R = TypeVar("R", RetrievalRow, BudgetRow)


class RowFile(Generic[R]):
    """Appends rows, each in one write, so that a killed run leaves complete lines.

    Existing rows stay, and an incomplete last line is removed. With `restart`, existing rows are
    not read, and `begin` removes them. This class is a context manager. All methods raise
    ConfigurationError if the file cannot be written.
    """

    def __init__(self, path: Path, kind: type[R], *, restart: bool = False) -> None:
        """Raises ConfigurationError if the file holds something else or cannot be written."""
        self._restart = restart
        self.path = path
        self._kind: type[R] = kind
        self._rows: dict[str, R] = {}
        self._file: AppendFile | None = None
        if path.exists() and not path.is_file():
            raise ConfigurationError(f"--output {path}: not a file; name one to write rows to")
        with writing(path):
            path.open("ab").close()
            if not restart:
                self._read()
                self._file = AppendFile(path)

    @property
    def rows(self) -> Mapping[str, R]:
        """All rows of the file by instance id."""
        return self._rows

    def begin(self) -> None:
        """Announce new rows; with `restart`, remove the old ones."""
        if self._file is None:
            with writing(self.path):
                os.truncate(self.path, 0)
                self._file = AppendFile(self.path)

    def append(self, row: R) -> None:
        """Add a row to the file, after `begin`."""
        assert self._file is not None
        with writing(self.path):
            self._file.append(_line(row), sync=False)
        self._rows[row.instance_id] = row

    def sort(self, order: Iterable[str]) -> None:
        """Rewrite the file in this order of instances; other rows come first, as found."""
        position = {name: number for number, name in enumerate(order)}
        rows = sorted(self._rows.values(), key=lambda row: position.get(row.instance_id, -1))
        data = b"".join(_line(row) for row in rows)
        with writing(self.path):
            if data != self.path.read_bytes():
                replace_file(self.path, [data])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self) -> None:
        data = self.path.read_bytes()
        end = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:end].split(b"\n")[:-1], start=1):
            row = self._parse(line, number)
            self._rows[row.instance_id] = row
        if end < len(data):
            torn = data[end:]
            if not torn.startswith(_BEGIN[: len(torn)]):
                raise self._foreign(1 + data.count(b"\n"))

    def _parse(self, line: bytes, number: int) -> R:
        try:
            return self._kind.model_validate_json(line)
        except ValidationError:
            raise self._foreign(number) from None

    def _foreign(self, number: int) -> ConfigurationError:
        return ConfigurationError(
            f"--output {self.path}:{number}: not a row of this command; name another file, or "
            "--restart to overwrite it"
        )


def _line(row: RetrievalRow | BudgetRow) -> bytes:
    return row.model_dump_json().encode() + b"\n"


_SETTINGS = (
    "preset", "without", "embed", "embed_model", "prefilter", "filename_bonus",
    "context_tokens", "context_reserve", "max_chunks",
    "max_file_mb", "model",
    "corpora",
)  # fmt: skip
"""The settings that a row depends on. The tokenizer of `model` counts the context."""

_CODE = (
    "retrieval", "repository", "run/problem.py", "shared/tokens.py", "shared/cache", "wiring",
    "search", "evaluation/retrieval/measure.py",
    "retrieval/weights/ranker.npz", "retrieval/weights/static.npz",
)  # fmt: skip


def provenance(settings: Settings) -> Mapping[str, Any]:
    """Return everything that rows depend on: settings, embedder and digest of the code.

    Raises ConfigurationError if the requested embedder is not available.
    """
    values = {name: getattr(settings, name) for name in _SETTINGS}
    values |= {name: sorted(values[name]) for name in ("without", "corpora")}
    return {**values, "embedder": embedder_name(settings), "code": code_digest()}


def embeds(settings: Settings) -> bool:
    """Return whether the preset uses embeddings."""
    return retrieval_options(settings).embedding


def embedder_name(settings: Settings) -> str | None:
    """Return the model or server that embeds, without credentials, None if none does.

    Raises ConfigurationError.
    """
    if not embeds(settings):
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
    """Return the SHA-256 of the source files that read, rank and pack, 16 hex digits."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for name in _CODE:
        part = root / name
        for file in [part] if part.is_file() else sorted(part.rglob("*.py")):
            digest.update(f"{name}/{file.name}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class RunNote:
    """The note beside `output`. An open note is locked, so that only one run at a time writes rows.

    The kernel releases the lock when the process ends. This class is a context manager.
    """

    def __init__(self, output: Path) -> None:
        """Raises ConfigurationError if another run holds the lock, or nothing can be written."""
        self._output = output
        self._path = output.with_name(f"{output.name}.run.json")
        with writing(self._path):
            handle = open_locked(self._path)
        if handle is None:
            raise ConfigurationError(
                f"--output {output}: another run writes to it; wait for that, or name another file"
            )
        self._handle = handle

    def check(self, current: Mapping[str, Any]) -> None:
        """Refuse to continue from rows that have other settings or no note.

        Raises ConfigurationError.
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
        """Write the provenance of the rows. Raises ConfigurationError."""
        data = (json.dumps(current, indent=2) + "\n").encode()
        if data == self._bytes():
            return
        with writing(self._path):
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, data, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not os.fstat(self._handle).st_size:  # a run without rows leaves no note
            self._path.unlink(missing_ok=True)
        os.close(self._handle)

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
        return "there is no note of them"
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return ", ".join(f"{name} {before.get(name)!r}, now {now.get(name)!r}" for name in names)
