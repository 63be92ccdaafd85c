"""The result rows, one a line: what `agent eval retrieval` writes and what it goes on from.

The rows of a run are as DESIGN.md's contract says; contexts of further budgets lie beside them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.errors import ConfigurationError

_BEGIN = b'{"instance_id":"'  # of every row, as it is written


class ContextRange(BaseModel):
    """Lines shown of a file, 1-based and inclusive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    start: int
    end: int


class Row(BaseModel):
    """What was retrieved for one instance, best first. `seconds`: ranking and packing.

    `functions` has the 100 best. `context`: the code shown, without what is there as support only
    (imports, signatures).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    instance_id: str = Field(min_length=1)
    files: tuple[str, ...]
    functions: tuple[str, ...]
    context: tuple[ContextRange, ...]
    context_tokens: int
    seconds: float


class BudgetContext(BaseModel):
    """The code shown within a token budget, as `Row.context`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget: int
    context: tuple[ContextRange, ...]
    context_tokens: int


class BudgetRow(BaseModel):
    """The same ranking packed into several budgets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    instance_id: str = Field(min_length=1)
    budgets: tuple[BudgetContext, ...]


R = TypeVar("R", Row, BudgetRow)


class RowFile(Generic[R]):
    """Appends rows, each in one write: whatever ends the run, whole lines are left.

    What lies there already is kept; a last line that was torn is cut off. A context manager.
    """

    def __init__(self, path: Path, kind: type[R], *, restart: bool = False) -> None:
        """Raises ConfigurationError for a file that holds something else, or cannot be written."""
        self.path = path
        self._kind: type[R] = kind
        self._rows: dict[str, R] = {}
        if path.exists() and not path.is_file():
            raise ConfigurationError(f"--output {path}: not a file; name one to write rows to")
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._handle = os.open(path, flags | (os.O_TRUNC if restart else 0), 0o666)
        except OSError as error:
            raise ConfigurationError(f"--output {path}: {error.strerror}") from None
        try:
            self._read()
        except BaseException:
            os.close(self._handle)
            raise

    @property
    def rows(self) -> Mapping[str, R]:
        """All rows of the file by instance id."""
        return self._rows

    def append(self, row: R) -> None:
        """Add a row to the file."""
        rest = memoryview(_line(row))
        while rest:  # one round, unless the disk is full: the second then raises
            rest = rest[os.write(self._handle, rest) :]
        self._rows[row.instance_id] = row

    def sort(self, order: Iterable[str]) -> None:
        """Rewrite the file, as a whole, in this order of instances; others come first, as found."""
        position = {name: number for number, name in enumerate(order)}
        rows = sorted(self._rows.values(), key=lambda row: position.get(row.instance_id, -1))
        data = b"".join(_line(row) for row in rows)
        if data == self.path.read_bytes():
            return
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).chmod(self.path.stat().st_mode & 0o777)
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._handle)

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
            os.ftruncate(self._handle, end)

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


def _line(row: Row | BudgetRow) -> bytes:
    return row.model_dump_json().encode() + b"\n"
