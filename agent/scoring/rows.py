"""The rows of a data set that predictions are for, found without holding the others.

Rows are SWE-bench's, as JSON lines (read line by line; of each row only its id is kept, of a wanted
one its place in the file) or as a JSON array (read whole).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.batch.dataset import Selection
from agent.environments.mistakes import mistake_in
from agent.errors import ConfigurationError
from agent.scoring.problems import Problem, place_of

_MARK = "\ufeff".encode()
# No line of a published set comes near; beyond it a file is no JSON lines.
_LONGEST_LINE = 256 * 1024 * 1024


def _listed(value: object) -> object:
    """A list, or a string that holds one as JSON, as data sets have it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


_ID_LIST = 'a list of test ids such as ["tests/test_a.py::test_b"], or a text that holds one,'
_EXPECTED = {
    "instance_id": "a text",
    "repo": 'a text such as "owner/name"',
    "base_commit": "a commit as 7 to 40 hex digits in lower case",
    "test_patch": "a diff as a text",
    "patch": "a diff as a text, or null,",
    "version": "a text",
    "FAIL_TO_PASS": _ID_LIST,
    "PASS_TO_PASS": _ID_LIST,
}

_Ids = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class Case(BaseModel):
    """What an evaluation has to know of a row. `patch` is the solution that the row brings."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    instance_id: str = Field(min_length=1)
    repo: str = Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")
    base_commit: str = Field(pattern=r"^[0-9a-f]{7,40}$")
    test_patch: str = ""
    patch: str | None = None
    version: str = ""
    fail_to_pass: _Ids = Field((), alias="FAIL_TO_PASS")
    pass_to_pass: _Ids = Field((), alias="PASS_TO_PASS")


class Rows:
    """An index of a data set: `ids` of all selected rows in their order, `problems` of the rest.

    A context manager; `read` gives one row at a time.
    """

    def __init__(self, path: Path, selection: Selection, wanted: Collection[str] | None) -> None:
        """`wanted` are the ids that `read` will be asked for, None: all.

        Raises ConfigurationError when the file cannot be read.
        """
        self._path = path
        self._offsets: dict[str, tuple[str, int, int]] = {}
        self._values: dict[str, tuple[str, Any]] = {}
        self.ids: list[str] = []
        self.problems: list[Problem] = []
        try:
            self._fill(selection, wanted)
        except FileNotFoundError:
            raise ConfigurationError(f"--dataset {path}: no such file; give JSON lines") from None
        except OSError as error:
            raise ConfigurationError(f"--dataset {path}: {error.strerror or error}") from None

    def read(self, instance_id: str) -> Case | Problem:
        """The row of a wanted id. Raises KeyError for another one."""
        if instance_id in self._values:
            place, value = self._values[instance_id]
        else:
            place, start, length = self._offsets[instance_id]
            with self._path.open("rb") as file:
                file.seek(start)
                value = json.loads(file.read(length).removeprefix(_MARK))
        return _case(value, place, instance_id)

    def has(self, instance_id: str) -> bool:
        """Whether `read` can be asked for it."""
        return instance_id in self._offsets or instance_id in self._values

    def _fill(self, selection: Selection, wanted: Collection[str] | None) -> None:
        seen: dict[str, str] = {}
        for number, (place, value, start, length) in enumerate(_rows(self._path)):
            name = _id_of(value)
            if not selection.takes(number, name):
                continue
            if name is None:
                self.problems.append(_no_id(value, place))
            elif name in seen:
                reason = f"{name} again, first at {seen[name]}; the first counts"
                self.problems.append(Problem("duplicate-row", place, reason, name))
            else:
                seen[name] = place
                if wanted is not None and name not in wanted:
                    self._count(value, place, name, selection)
                    continue
                self.ids.append(name)
                if length:
                    self._offsets[name] = (place, start, length)
                else:
                    self._values[name] = (place, value)

    def _count(self, value: Any, place: str, name: str, selection: Selection) -> None:
        """Take in a row that no prediction is for; one that could not be judged is told."""
        mistake = _parsed(value, place, name)
        if isinstance(mistake, Problem):
            self.problems.append(mistake)
        if isinstance(mistake, Case) or name in selection.ids:
            self.ids.append(name)


def _id_of(value: Any) -> str | None:
    name = value.get("instance_id") if isinstance(value, dict) else None
    return name if isinstance(name, str) and name else None


def _no_id(value: Any, place: str) -> Problem:
    if isinstance(value, Problem):
        return value
    what = "instance_id: a text is needed" if isinstance(value, dict) else "not a JSON object"
    return Problem("bad-row", place, what)


def _parsed(value: Any, place: str, name: str) -> Case | Problem:
    try:
        return Case.model_validate(value)
    except ValidationError as error:
        where, what = mistake_in(error, _EXPECTED, value if isinstance(value, dict) else ())
        if not isinstance(value, dict):
            return Problem("bad-row", place, "not a JSON object", name)
        return Problem("bad-row", place, f"{'.'.join(map(str, where))}: {what}", name)


def _case(value: Any, place: str, name: str) -> Case | Problem:
    case = _parsed(value, place, name)
    if isinstance(case, Case) and not (case.fail_to_pass or case.pass_to_pass):
        return Problem("bad-row", place, "FAIL_TO_PASS, PASS_TO_PASS: no test decides", name)
    return case


def _rows(path: Path) -> Iterator[tuple[str, Any, int, int]]:
    """Each row's place and value (or a `Problem`), and where its line is; length 0: in no line."""
    with path.open("rb") as file:
        begin = file.read(4096).removeprefix(_MARK).lstrip()
        file.seek(0)
        if begin.startswith(b"["):
            for number, value in enumerate(_array(path, file.read()), start=1):
                yield place_of(path, number, row=True), value, 0, 0
            return
        start = 0
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
            place = place_of(path, number)
            if line.removeprefix(_MARK).strip():
                yield place, _json(line.removeprefix(_MARK), place), start, len(line)
            start += len(line)


def _array(path: Path, data: bytes) -> list[Any]:
    try:
        rows = json.loads(data.removeprefix(_MARK))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"--dataset {path}: not valid JSON ({error}); correct it"
        ) from None
    return rows if isinstance(rows, list) else []


def _json(line: bytes, place: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return Problem("bad-row", place, f"not valid JSON ({error})")
