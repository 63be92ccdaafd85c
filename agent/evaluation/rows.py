"""The result rows, one a line: what `agent eval retrieval` writes and what it goes on from.

The rows of a run are as DESIGN.md's contract says; contexts of further budgets lie beside them.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
    """The same ranking packed into several budgets. `asked`: the digest of its instance."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    instance_id: str = Field(min_length=1)
    budgets: tuple[BudgetContext, ...]
    asked: str = ""


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Turns what the system says of a file into a ConfigurationError that names `--output`."""
    try:
        yield
    except OSError as error:
        kept = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            kept = "; free some space, then give the same command again: it goes on from there"
        raise ConfigurationError(f"--output {output}: {error.strerror or error}{kept}") from None


R = TypeVar("R", Row, BudgetRow)


class RowFile(Generic[R]):
    """Appends rows, each in one write: whatever ends the run, whole lines are left.

    What lies there already is kept; a last line that was torn is cut off. With `restart` it is not
    read, and gone as soon as `begin` is called. A context manager. All methods raise
    ConfigurationError where the file cannot be written.
    """

    def __init__(self, path: Path, kind: type[R], *, restart: bool = False) -> None:
        """Raises ConfigurationError for a file that holds something else, or cannot be written."""
        self._restart = restart
        self.path = path
        self._kind: type[R] = kind
        self._rows: dict[str, R] = {}
        if path.exists() and not path.is_file():
            raise ConfigurationError(f"--output {path}: not a file; name one to write rows to")
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with writing(path):
            self._handle = os.open(path, flags, 0o666)
        try:
            if not restart:
                with writing(path):
                    self._read()
        except BaseException:
            os.close(self._handle)
            raise

    @property
    def rows(self) -> Mapping[str, R]:
        """All rows of the file by instance id."""
        return self._rows

    def begin(self) -> None:
        """Rows will come: what a restart is to replace goes."""
        if self._restart:
            with writing(self.path):
                os.ftruncate(self._handle, 0)

    def append(self, row: R) -> None:
        """Add a row to the file."""
        rest = memoryview(_line(row))
        with writing(self.path):
            while rest:  # one round, unless the disk is full: the second then raises
                rest = rest[os.write(self._handle, rest) :]
        self._rows[row.instance_id] = row

    def sort(self, order: Iterable[str]) -> None:
        """Rewrite the file, as a whole, in this order of instances; others come first, as found."""
        position = {name: number for number, name in enumerate(order)}
        rows = sorted(self._rows.values(), key=lambda row: position.get(row.instance_id, -1))
        data = b"".join(_line(row) for row in rows)
        with writing(self.path):
            if data != self.path.read_bytes():
                self._replace(data)

    def _replace(self, data: bytes) -> None:
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
