"""The instances to solve, streamed from a data set: what a solver may know of a row, and no more.

Rows are SWE-bench's, as JSON lines (read line by line, whatever their number) or as a JSON array
(read whole). A row that cannot be used is told with its place; the others go on. `patch`,
`test_patch`, `FAIL_TO_PASS` and all other fields end here: `Task` has no room for them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.environments.mistakes import mistake_in
from agent.errors import ConfigurationError

_EXPECTED = {
    "instance_id": "a text",
    "repo": 'a text such as "owner/name"',
    "base_commit": "a commit as 7 to 40 hex digits in lower case",
    "problem_statement": "the issue as a text",
}

_ARRAY = b"["
_MARK = "\ufeff".encode()
# No line of a published set comes near; beyond it a file is no JSON lines.
_LONGEST_LINE = 64 * 1024 * 1024
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_LONGEST_STEM = 80  # of another name: a folder's has at most 255 bytes


class Task(BaseModel):
    """What a solver is told of an instance."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    instance_id: str = Field(min_length=1)
    repo: str = Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")
    base_commit: str = Field(pattern=r"^[0-9a-f]{7,40}$")
    problem_statement: str

    @property
    def folder_name(self) -> str:
        """The name of its folder."""
        return folder_name(self.instance_id)


def folder_name(instance_id: str) -> str:
    """The name of an instance's folder: the id where that is a plain name, else made from it."""
    if _PLAIN_NAME.fullmatch(instance_id):
        return instance_id
    digest = hashlib.sha256(instance_id.encode("utf-8", "surrogatepass")).hexdigest()
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", instance_id).strip("-")
    return f"{stem[:_LONGEST_STEM]}~{digest[:16]}"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: where it is ("set.jsonl:7") and why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows: all that every filter lets through.

    `ids`: these; `pattern` is searched for in the id; `start` (included) and `stop` (excluded)
    count the rows of the file from 0.
    """

    ids: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    start: int = 0
    stop: int | None = None

    def takes(self, number: int, instance_id: str | None) -> bool:
        """Whether row `number` (from 0) is wanted. No filter by id takes one that has none."""
        if number < self.start or (self.stop is not None and number >= self.stop):
            return False
        if instance_id is None:
            return not self.ids and self.pattern is None
        if self.ids and instance_id not in self.ids:
            return False
        return self.pattern is None or self.pattern.search(instance_id) is not None


def make_selection(ids: tuple[str, ...], window: str | None, pattern: str | None) -> Selection:
    """From the command line. Raises ConfigurationError."""
    try:
        compiled = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(
            f"--match {pattern}: no regular expression ({error}); correct it"
        ) from None
    found = re.fullmatch(r"([0-9]{0,9}):([0-9]{0,9})", ":" if window is None else window)
    if found is None:
        raise ConfigurationError(f"--slice {window}: give two counts such as 0:50, :50 or 100:")
    start, stop = (int(part) if part else None for part in found.groups())
    return Selection(frozenset(ids), compiled, start or 0, stop)


def read_tasks(
    path: Path, selection: Selection, seen: dict[str, None] | None = None
) -> Iterator[Task | BadRow]:
    """The selected rows in the order of the file, each id once; what cannot be used as `BadRow`.

    `seen` is filled with the ids of all rows, selected or not, in the same order.

    Raises ConfigurationError when the file itself cannot be read.
    """
    places: dict[str, str] = {}
    for number, (place, value) in enumerate(_rows(path)):
        row = value if isinstance(value, BadRow) else _task(value, place)
        name = None if isinstance(row, BadRow) else row.instance_id
        if seen is not None and name is not None:
            seen.setdefault(name)
        if not selection.takes(number, name):
            continue
        first = place if name is None else places.setdefault(name, place)
        if first == place:
            yield row
        else:
            yield BadRow(place, f"{name} again, first at {first}; the first counts")


def _task(value: Any, place: str) -> Task | BadRow:
    try:
        return Task.model_validate(value)
    except ValidationError as error:
        if not isinstance(value, dict):
            return BadRow(place, "not a JSON object")
        where, what = mistake_in(error, _EXPECTED, value)
        return BadRow(place, f"{'.'.join(map(str, where))}: {what}")


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Each row's place and JSON value, or a `BadRow` in its stead."""
    try:
        with path.open("rb") as file:
            begin = file.read(4096).removeprefix(_MARK).lstrip()
            file.seek(0)
            if begin.startswith(_ARRAY):
                yield from _array(path, file.read())
            else:
                yield from _lines(path, iter(lambda: file.readline(_LONGEST_LINE), b""))
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file; --dataset takes a JSONL file") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror}); see to it") from None


def _array(path: Path, data: bytes) -> Iterator[tuple[str, Any]]:
    try:
        rows = json.loads(data.removeprefix(_MARK))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: not valid JSON ({error}); correct it") from None
    for number, row in enumerate(rows, start=1):
        yield f"{path}: row {number}", row


def _lines(path: Path, lines: Iterator[bytes]) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(lines, start=1):
        text = line.removeprefix(_MARK) if number == 1 else line
        if text.strip():
            yield f"{path}:{number}", _json(text, f"{path}:{number}")


def _json(line: bytes, place: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadRow(place, f"not valid JSON ({error})")
