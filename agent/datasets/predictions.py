"""Predictions: patches by instance, in the three forms that the SWE-bench harness accepts.

`preds.json` is {id: {...}} or [{...}], `all_preds.jsonl` has one {...} a line. Each entry has
`instance_id`, `model_name_or_path` and `model_patch`. A reader goes by the content of the file, not
by its name.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.datasets.rows import BYTE_ORDER_MARK, InputProblem, describe_mistake, read_json_lines
from agent.errors import ConfigurationError
from agent.shared.files import replace_file

PredictionsForm = Literal["dict", "list", "jsonl"]

_EXPECTED = {
    "instance_id": "a text",
    "model_name_or_path": "a text",
    "model_patch": "a diff as a text, or null,",
}


class Prediction(BaseModel):
    """One model's patch for one instance; None and blank text stand for no patch."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, protected_namespaces=())

    instance_id: str = Field(min_length=1)
    model_name_or_path: str = ""
    model_patch: str | None

    @property
    def patch(self) -> str:
        """The patch, "" if there is none."""
        text = self.model_patch or ""
        return text if text.strip() else ""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions by id in the order of the file. `problems` are the entries that do not count."""

    by_id: dict[str, Prediction]
    problems: tuple[InputProblem, ...]


def read_predictions(path: Path) -> Predictions:
    """Read all entries of a file. Raises ConfigurationError if it has none of the three forms."""
    found: dict[str, Prediction] = {}
    places: dict[str, str] = {}
    problems: list[InputProblem] = []
    for place, key, value in _entries(path):
        entry = _prediction(place, key, value)
        if isinstance(entry, InputProblem):
            problems.append(entry)
            continue
        name = entry.instance_id
        if name in found:
            what = "the same again" if entry == found[name] else "another patch"
            reason = f"{name}: {what}, first at {places[name]}; the first counts"
            problems.append(InputProblem("duplicate-prediction", place, reason, name))
            continue
        found[name], places[name] = entry, place
    return Predictions(found, tuple(problems))


def _prediction(place: str, key: str | None, value: Any) -> Prediction | InputProblem:
    """`key` is that of the dictionary form; `value` may be an InputProblem already."""

    def problem(reason: str) -> InputProblem:
        return InputProblem("bad-prediction", place, reason, key or "")

    if isinstance(value, InputProblem):
        return value
    if not isinstance(value, dict):
        return problem("not a JSON object")
    if key is not None and (named := value.setdefault("instance_id", key)) != key:
        return problem(f"instance_id: {named!r} under the key {key!r}")
    try:
        return Prediction.model_validate(value)
    except ValidationError as error:
        return problem(describe_mistake(error, _EXPECTED, value))


def _entries(path: Path) -> Iterator[tuple[str, str | None, Any]]:
    """Yield the place, the key (of the dictionary form) and the value of each entry."""
    try:
        data = path.read_bytes().removeprefix(BYTE_ORDER_MARK)
    except OSError as error:
        raise ConfigurationError(
            f"--predictions {path}: {error.strerror or error}; give preds.json or all_preds.jsonl"
        ) from None
    value = _parse_whole(data)
    if isinstance(value, list):
        for number, each in enumerate(value, start=1):
            yield f"{path}: row {number}", None, each
    elif isinstance(value, dict) and "instance_id" not in value:
        for key, each in value.items():
            yield f"{path}: {key}", key, each
    elif data.lstrip()[:1] in (b"{", b""):
        for row in read_json_lines(path, io.BytesIO(data)):
            bad = InputProblem("bad-prediction", row.place, row.mistake)
            yield row.place, None, bad if row.mistake else row.value
    else:
        raise ConfigurationError(
            f"--predictions {path}: neither JSON nor JSON lines; give preds.json or all_preds.jsonl"
        )


def _parse_whole(data: bytes) -> Any:
    """Return the file as one JSON value, None if it is not one."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def choose_form(output: Path, chosen: PredictionsForm | None) -> PredictionsForm:
    """Return the form that was chosen, or the one that goes with the name of the file."""
    if chosen is not None:
        return chosen
    return "jsonl" if output.suffix == ".jsonl" else "dict"


def check_output(path: Path) -> None:
    """Raise ConfigurationError if no file can be written at `path`."""
    if not path.parent.is_dir():
        raise ConfigurationError(f"--output {path}: there is no folder {path.parent}; make it")
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"--output {path}: not a file; name one to write to")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise ConfigurationError(
            f"--output {path}: nothing can be written in {path.parent} ({error.strerror}); name "
            "another place"
        ) from None


class PredictionsWriter:
    """Collects predictions and replaces the file as a whole.

    Entries stand in the order of `ids`, and other entries after them in the order in which they
    come. If the file cannot be written, `failure` says why, and the next `write` tries again.
    """

    def __init__(self, path: Path, form: PredictionsForm, model: str, ids: Iterable[str]) -> None:
        """Raises ConfigurationError if no file can be written at `path`."""
        check_output(path)
        self._path = path
        self._form = form
        self._model = model
        self._ranks = {name: rank for rank, name in enumerate(ids)}
        self._entries: dict[str, bytes] = {}
        self._dirty = True
        self.failure: OSError | None = None

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self._path)

    def put(self, name: str, patch: str) -> None:
        """Add or replace an entry; `write` writes it."""
        self._ranks.setdefault(name, len(self._ranks))
        entry = {
            "instance_id": name,
            "model_name_or_path": self._model,
            "model_patch": patch,
        }
        self._entries[name] = json.dumps(entry).encode("ascii")
        self._dirty = True

    def write(self) -> None:
        """Write the file if an entry is new."""
        if not self._dirty:
            return
        try:
            replace_file(self._path, self._parts())
        except OSError as error:
            self.failure = error
        else:
            self.failure, self._dirty = None, False

    def _parts(self) -> Iterator[bytes]:
        if not self._entries:
            yield {"dict": b"{}\n", "list": b"[]\n", "jsonl": b""}[self._form]
            return
        opening, closing, between = {
            "dict": (b"{\n", b"\n}\n", b",\n"),
            "list": (b"[\n", b"\n]\n", b",\n"),
            "jsonl": (b"", b"\n", b"\n"),
        }[self._form]
        yield opening
        for number, name in enumerate(sorted(self._entries, key=self._ranks.__getitem__)):
            key = json.dumps(name).encode("ascii") + b": "
            yield between if number else b""
            yield key if self._form == "dict" else b""
            yield self._entries[name]
        yield closing
