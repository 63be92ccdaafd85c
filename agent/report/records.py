"""Read the files of a run: safely from the disk, and leniently as JSON records.

No link below the run folder is followed, because the run may have been made by untrusted code. The
files may also come from another version of this program, so unknown fields are ignored and missing
ones are empty.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block

# Documents of a run are much smaller.
LARGEST_DOCUMENT = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FilePart:
    """The bytes read from a file, or the `problem`. `size` is that of the whole file."""

    data: bytes = b""
    size: int = 0
    problem: str = ""

    @property
    def missing(self) -> bool:
        """Whether there is no such file."""
        return self.problem == _MISSING


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file without its newline, and its position in bytes."""

    data: bytes
    offset: int
    length: int


_MISSING = "not there"


class RunFiles:
    """The files below `root`. The path of the root may contain links, paths below it may not."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folders(self, *parts: str) -> list[str]:
        """Return the names of the folders in a folder, without links, sorted."""
        try:
            with self._opened(parts) as handle, os.scandir(handle) as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except OSError:
            return []

    def document(self, *parts: str) -> FilePart:
        """Read a whole file, unless it is larger than LARGEST_DOCUMENT."""
        piece = self.head(LARGEST_DOCUMENT, *parts)
        if piece.size > LARGEST_DOCUMENT:
            return FilePart(size=piece.size, problem=f"larger than {LARGEST_DOCUMENT:,} bytes")
        return piece

    def head(self, limit: int, *parts: str) -> FilePart:
        """Read the first `limit` bytes of a file."""
        return self._read(0, limit, parts)

    def tail(self, limit: int, *parts: str) -> FilePart:
        """Read the last `limit` bytes of a file."""
        return self._read(-limit, limit, parts)

    def part(self, offset: int, length: int, *parts: str) -> FilePart:
        """Read `length` bytes from `offset`."""
        return self._read(offset, length, parts)

    def lines(self, *parts: str) -> Iterator[Line]:
        """Yield the whole lines of a file, none if it cannot be read.

        A torn last line is left out; one longer than LARGEST_DOCUMENT comes in parts.
        """
        try:
            with self._file(parts) as handle, os.fdopen(os.dup(handle), "rb") as file:
                yield from _lines(iter(lambda: file.readline(LARGEST_DOCUMENT), b""))
        except OSError:
            return

    def _read(self, start: int, limit: int, parts: tuple[str, ...]) -> FilePart:
        try:
            with self._file(parts) as handle:
                size = os.fstat(handle).st_size
                offset = start if start >= 0 else max(0, size + start)
                return FilePart(_read_all(handle, offset, limit), size)
        except FileNotFoundError:
            return FilePart(problem=_MISSING)
        except OSError as error:
            return FilePart(problem=error.strerror or str(error))

    @contextmanager
    def _file(self, parts: tuple[str, ...]) -> Iterator[int]:
        """Open a regular file. Raises OSError for anything else."""
        with self._opened(parts[:-1]) as folder:
            if stat.S_ISLNK(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                raise OSError(0, "a link, not followed")
            handle = os.open(parts[-1], _FILE, dir_fd=folder)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise OSError(0, "not a regular file")
                yield handle
            finally:
                os.close(handle)

    @contextmanager
    def _opened(self, parts: tuple[str, ...]) -> Iterator[int]:
        current = os.open(self.root, _FOLDER & ~os.O_NOFOLLOW)
        try:
            for part in parts:
                if "/" in part or part in ("", ".", ".."):
                    raise OSError(0, "not a plain name")
                following = os.open(part, _FOLDER, dir_fd=current)
                os.close(current)
                current = following
            yield current
        finally:
            os.close(current)


def _lines(found: Iterator[bytes]) -> Iterator[Line]:
    offset = 0
    for line in found:
        if line.endswith(b"\n") or len(line) >= LARGEST_DOCUMENT:
            yield Line(line.rstrip(b"\n"), offset, len(line))
        offset += len(line)


def _read_all(handle: int, offset: int, limit: int) -> bytes:
    parts = []
    while limit > 0 and (data := os.pread(handle, min(limit, 1 << 20), offset)):
        parts.append(data)
        offset, limit = offset + len(data), limit - len(data)
    return b"".join(parts)


def _listed(value: Any) -> Any:
    return () if value is None else value


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


_MOST = 10**15  # larger numbers are not measurements
Count = Annotated[int, Field(ge=-_MOST, le=_MOST)]
Number = Annotated[float, Field(ge=-_MOST, le=_MOST)]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class EditRecord(_Record):
    """One applied edit, and the tier that found its location."""

    path: str = ""
    tier: str = ""
    line: Count = 0
    path_as_written: str | None = None


class RepairRecord(_Record):
    """A repaired mistake in the reply. `edit` counts from 1."""

    name: str = ""
    note: str = ""
    saved: str = ""
    edit: Count | None = None


class TestRecord(_Record):
    """Counts of one test run."""

    __test__ = False

    command: Names = ()
    passed: Count = 0
    failed: Count = 0
    skipped: Count = 0
    seconds: Number = 0.0
    ended: str = ""
    channels: Names = ()
    disagreements: Names = ()
    cached: bool = False


class SelectedRecord(_Record):
    """A test file that was run, and the reason."""

    path: str = ""
    reason: str = ""


class ValidationRecord(_Record):
    """A verdict and its evidence."""

    verdict: str = ""
    reason: str = ""
    backend: str = ""
    interpreter: str = ""
    runner: str = ""
    selected: tuple[SelectedRecord, ...] = ()
    before: TestRecord | None = None
    after: TestRecord | None = None
    reproduction_before: TestRecord | None = None
    reproduction_after: TestRecord | None = None
    whole: TestRecord | None = None
    newly_failing: Names = ()
    newly_passing: Names = ()
    fail_to_pass: Names = ()
    pass_to_pass: Names = ()
    known_missed: Names = ()
    notes: Names = ()
    seconds: Number = 0.0


class AttemptRecord(_Record):
    """One reply and its result."""

    kind: str = ""
    status: str = ""
    reason: str = ""
    reader: str | None = None
    failure_kinds: Names = ()
    missing: Names = ()
    edits: tuple[EditRecord, ...] = ()
    repairs: tuple[RepairRecord, ...] = ()
    validation: ValidationRecord | None = None


class UsageRecord(_Record):
    """Calls, tokens and dollars."""

    calls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Number | None = None


class TestFileRecord(_Record):
    """The test that the reply contains."""

    __test__ = False

    path: str = ""
    content: str = ""


class ReasonRecord(_Record):
    """One contribution to the score of a chunk."""

    feature: str = ""
    value: Number = 0.0
    note: str = ""


class PieceRecord(_Record):
    """One piece of the context, and the reason for including it."""

    path: str = ""
    start: Count = 0
    end: Count = 0
    symbol: str = ""
    form: str = ""
    tokens: Count = 0
    rank: Count | None = None
    score: Number = 0.0
    reasons: tuple[ReasonRecord, ...] = ()


class DroppedRecord(_Record):
    """One ranked chunk that is not in the context, and the step that removed it."""

    path: str = ""
    start: Count = 0
    end: Count = 0
    symbol: str = ""
    tokens: Count = 0
    rank: Count | None = None
    cut_by: str = ""


class ReceiptRecord(_Record):
    """The receipt of one context."""

    tokens: Count = 0
    budget: Count = 0
    total_chunks: Count = 0
    ranked_chunks: Count = 0
    pieces: tuple[PieceRecord, ...] = ()
    dropped: tuple[DroppedRecord, ...] = ()
    notes: Names = ()


class IssueRecord(_Record):
    """The issue of one solve."""

    title: str = ""
    body: str = ""


class ResultRecord(_Record):
    """The result of one solve (`agent solve --json`). Only `status` is required."""

    status: str
    verdict: str | None = None
    message: str = ""
    diff: str = ""
    thought: str = ""
    reproduction_test: TestFileRecord | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    usage: UsageRecord = UsageRecord()
    timings: dict[str, Number] = Field(default_factory=dict)
    model: str | None = None
    commit: str = ""
    dirty: bool = False
    receipt: ReceiptRecord | None = None
    notes: Names = ()
    issue: IssueRecord | None = None


class MadeWithRecord(_Record):
    """`run.json`: the inputs of a run. `dataset` is a hash."""

    dataset: str = ""
    model: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)


class MessageRecord(_Record):
    """One message of a prompt."""

    role: str = ""
    content: str = ""


class RequestRecord(_Record):
    """The request of a model call."""

    model: str = ""
    messages: tuple[MessageRecord, ...] = ()
    max_output_tokens: Count = 0


class ReplyRecord(_Record):
    """The reply of a model call."""

    text: str = ""
    model: str = ""
    finish_reason: str = ""
    usage: UsageRecord = UsageRecord()


class ExchangeRecord(_Record):
    """One line of `exchanges.jsonl`."""

    sha256: str = ""
    request: RequestRecord = RequestRecord()
    reply: ReplyRecord = ReplyRecord()
    seconds: Number = 0.0


Record = TypeVar("Record", bound=_Record)


def read_record(kind: type[Record], data: bytes) -> Record | str:
    """Return the record of a JSON text, or a description of the problem with it."""
    try:
        return kind.model_validate_json(data.decode("utf-8", "replace"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]


def record_of(kind: type[Record], piece: FilePart) -> Record | str:
    """Return the record of a file, or a description of the problem, "" if the file is missing."""
    if piece.problem:
        return "" if piece.missing else piece.problem
    return read_record(kind, piece.data)
