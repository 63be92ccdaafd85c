"""Read the entries of a SWE-bench data set or of a file of predictions, each as a pydantic model.

`agent.verify` reads the single row of `--tests-from`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel, ValidationError

from agent.errors import ConfigurationError
from agent.shared.files import LONGEST_ROW

_BYTE_ORDER_MARK = "\ufeff".encode()

_Entry = TypeVar("_Entry", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class InputProblem:
    """What is wrong with one entry of a data set or of a file of predictions.

    `place` is such as "preds.jsonl:7"; `instance_id` is "" where none could be read.
    """

    place: str
    reason: str
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Select the rows that pass every filter.

    `ids` are the selected ids (none: all); `pattern` is searched for in the id; `start` (included)
    and `stop` (excluded) count the rows of the file from 0.
    """

    ids: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    start: int = 0
    stop: int | None = None

    def takes(self, number: int, instance_id: str) -> bool:
        """Whether row `number` is selected. A filter by id drops rows without one ("")."""
        if number < self.start or (self.stop is not None and number >= self.stop):
            return False
        if self.ids and instance_id not in self.ids:
            return False
        return self.pattern is None or bool(instance_id and self.pattern.search(instance_id))


def make_selection(ids: tuple[str, ...], window: str | None, pattern: str | None) -> RowSelection:
    """Return the selection of `--id`, `--slice` and `--match`. Raises ConfigurationError."""
    try:
        compiled = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"--match {pattern}: not a regular expression ({error})") from None
    bounds = re.fullmatch(r"([0-9]{0,9}):([0-9]{0,9})", ":" if window is None else window)
    if bounds is None:
        raise ConfigurationError(f"--slice {window}: give two counts such as 0:50, :50 or 100:")
    start, stop = (int(part) if part else None for part in bounds.groups())
    return RowSelection(frozenset(ids), compiled, start or 0, stop)


def read_entries(
    path: Path,
    kind: type[_Entry],
    selection: RowSelection | None = None,
    option: str = "--dataset",
) -> Iterator[_Entry | InputProblem]:
    """Yield the selected entries in the order of the file; a bad or repeated one as its problem.

    The file holds JSON lines, an array, or (predictions) an object of entries by id. `option` is
    for messages. Raises ConfigurationError when the file itself cannot be read.
    """
    places: dict[str, str] = {}
    for number, (place, value) in enumerate(_read_values(path, option)):
        name = value.get("instance_id") if isinstance(value, dict) else None
        name = name if isinstance(name, str) else ""
        if selection is not None and not selection.takes(number, name):
            continue
        first = places.setdefault(name, place) if name else place
        if first != place:
            yield InputProblem(place, f"{name} again, first at {first}; the first counts", name)
        elif isinstance(value, InputProblem):
            yield value
        else:
            yield _model(kind, place, value, name)


def _model(kind: type[_Entry], place: str, value: Any, name: str) -> _Entry | InputProblem:
    if not isinstance(value, dict):
        return InputProblem(place, "not a JSON object")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        message = first["msg"].removeprefix("Value error, ")
        return InputProblem(place, f"{'.'.join(map(str, first['loc']))}: {message}", name)


def _read_values(path: Path, option: str) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each entry; JSON lines are read one by one."""
    try:
        with path.open("rb") as file:
            begin = file.read(4096).removeprefix(_BYTE_ORDER_MARK).lstrip()
            file.seek(0)
            # a data set of JSON lines may be too large to be parsed as a whole
            whole = option == "--predictions" or begin.startswith(b"[")
            value = _parse(file.read()) if whole else None
            file.seek(0)
            if isinstance(value, list):
                for number, each in enumerate(value, start=1):
                    yield f"{path}: row {number}", each
            elif isinstance(value, dict) and "instance_id" not in value:
                for name, each in value.items():
                    entry = {"instance_id": name, **each} if isinstance(each, dict) else each
                    yield f"{path}: {name}", entry
            else:
                yield from _read_lines(path, file)
    except OSError as error:
        raise ConfigurationError(f"{option} {path}: {error.strerror or error}") from None


def _read_lines(path: Path, file: BinaryIO) -> Iterator[tuple[str, Any]]:
    number = 0
    while line := file.readline(LONGEST_ROW + 1):
        number += 1
        place = f"{path}:{number}"
        if len(line) > LONGEST_ROW:
            size = f"longer than {LONGEST_ROW // 2**20} MiB"
            yield place, InputProblem(place, f"{size}: one row a line is read, and none below")
            return
        if line.removeprefix(_BYTE_ORDER_MARK).strip():
            yield place, _parse(line, place)


def _parse(data: bytes, place: str = "") -> Any:
    """Return the JSON value, or an InputProblem."""
    try:
        return json.loads(data.removeprefix(_BYTE_ORDER_MARK))
    except (ValueError, RecursionError) as error:
        return InputProblem(place, f"not valid JSON ({error})")
