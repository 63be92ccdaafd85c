"""Read the rows of a SWE-bench data set, one at a time, from JSON lines or from a JSON array.

This module reads all data sets; `agent.verify` reads the single row of `--tests-from`. It knows
no field but `instance_id`. The views of `agent.datasets.instances` take what the solver, an
evaluation of retrieval, or the scoring of patches may know of a row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import ConfigurationError
from agent.shared.files import LONGEST_ROW

BYTE_ORDER_MARK = "\ufeff".encode()

ProblemKind = Literal[
    "bad-prediction", "duplicate-prediction", "unknown-instance", "bad-row", "duplicate-row"
]


class InputProblem(BaseModel):
    """What is wrong with one entry of a data set or of a file of predictions.

    `place` is such as "preds.jsonl:7"; `instance_id` is "" where none could be read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ProblemKind
    place: str
    reason: str
    instance_id: str = ""

    def __init__(self, kind: ProblemKind, place: str, reason: str, instance_id: str = "") -> None:
        """Accept positional arguments too."""
        super().__init__(kind=kind, place=place, reason=reason, instance_id=instance_id)


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One row as it stands in its file, or `mistake`, the reason why it cannot be read.

    `place` names the line ("set.jsonl:7") or the element of an array ("set.json: row 7").
    """

    place: str
    value: Any = None
    mistake: str = ""

    @property
    def instance_id(self) -> str:
        """The id of the instance, "" for a row without one."""
        name = self.value.get("instance_id") if isinstance(self.value, dict) else None
        return name if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Select the rows that pass every filter.

    `ids` are the wanted ids (none: all); `pattern` is searched for in the id; `start` (included)
    and `stop` (excluded) count the rows of the file from 0.
    """

    ids: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    start: int = 0
    stop: int | None = None

    def takes(self, number: int, instance_id: str) -> bool:
        """Return whether row `number` (from 0) is selected. A filter by id drops rows without id.

        `instance_id` is "" for a row without a usable id.
        """
        if number < self.start or (self.stop is not None and number >= self.stop):
            return False
        if not instance_id:
            return not self.ids and self.pattern is None
        if self.ids and instance_id not in self.ids:
            return False
        return self.pattern is None or self.pattern.search(instance_id) is not None


def make_selection(ids: tuple[str, ...], window: str | None, pattern: str | None) -> RowSelection:
    """Return the selection of `--id`, `--slice` and `--match`. Raises ConfigurationError."""
    try:
        compiled = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(
            f"--match {pattern}: not a regular expression ({error}); correct it"
        ) from None
    found = re.fullmatch(r"([0-9]{0,9}):([0-9]{0,9})", ":" if window is None else window)
    if found is None:
        raise ConfigurationError(f"--slice {window}: give two counts such as 0:50, :50 or 100:")
    start, stop = (int(part) if part else None for part in found.groups())
    return RowSelection(frozenset(ids), compiled, start or 0, stop)


def read_rows(path: Path, *, longest: int = LONGEST_ROW) -> Iterator[DatasetRow]:
    """Yield the rows of a file in its order; JSON lines are read one by one, an array as a whole.

    A line of more than `longest` bytes is not parsed: its row says so. Raises ConfigurationError
    when the file itself cannot be read.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(4096).removeprefix(BYTE_ORDER_MARK).lstrip()
            file.seek(0)
            if begin.startswith(b"["):
                yield from _read_array(path, file.read())
            else:
                yield from read_json_lines(path, file, longest)
    except FileNotFoundError:
        raise ConfigurationError(
            f"--dataset {path}: no such file; give SWE-bench rows as JSON lines"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"--dataset {path}: cannot be read ({error.strerror or error})"
        ) from None


def read_json_lines(path: Path, file: BinaryIO, longest: int = LONGEST_ROW) -> Iterator[DatasetRow]:
    """Yield the JSON value of each line of `file` that is not blank. `path` is for the messages."""
    number = 0
    while line := file.readline(longest + 1):
        number += 1
        too_long = False
        while len(line) > longest and not line.endswith(b"\n"):
            too_long = True
            line = file.readline(longest + 1)
        place = f"{path}:{number}"
        if too_long:
            size = f"{longest // 2**20} MiB" if longest >= 2**20 else f"{longest} bytes"
            yield DatasetRow(place, mistake=f"longer than {size}; give one row a line")
        elif (text := line.removeprefix(BYTE_ORDER_MARK)).strip():
            try:
                yield DatasetRow(place, json.loads(text))
            except (ValueError, RecursionError) as error:
                yield DatasetRow(place, mistake=f"not valid JSON ({error})")


def _read_array(path: Path, data: bytes) -> Iterator[DatasetRow]:
    try:
        values = json.loads(data.removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"--dataset {path}: not valid JSON ({error}); correct it"
        ) from None
    for number, value in enumerate(values, start=1):
        yield DatasetRow(f"{path}: row {number}", value)


def describe_mistake(
    error: ValidationError, expected: Mapping[str, str], given: Collection[str] = ()
) -> str:
    """Describe the first mistake in a row: its field, and what is wrong there.

    `expected` says what each field takes ("a text"); `given` are the row's fields.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join(map(str, first["loc"]))
    takes = expected.get(name.partition(".")[0])
    if first["type"] == "missing":
        close = get_close_matches(name, sorted(given), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"{name}: is missing ({takes or 'it is needed'}){hint}"
    if takes and first["type"] != "value_error":
        return f"{name}: {takes} is needed"
    return f"{name}: {first['msg'].removeprefix('Value error, ')}"
