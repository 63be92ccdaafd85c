"""Predictions in the three forms that the SWE-bench harness takes, read entry by entry.

`preds.json` as {id: {...}} or [{...}], `all_preds.jsonl` one {...} a line; each has `instance_id`,
`model_name_or_path`, `model_patch`. The content tells the form, not the name of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.environments.mistakes import mistake_in
from agent.errors import ConfigurationError
from agent.scoring.problems import Problem, place_of

_EXPECTED = {
    "instance_id": "a text",
    "model_name_or_path": "a text",
    "model_patch": "a diff as a text, or null,",
}

_MARK = "\ufeff".encode()


class Prediction(BaseModel):
    """One model's patch for one instance; None and blank text are no patch."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, protected_namespaces=())

    instance_id: str = Field(min_length=1)
    model_name_or_path: str = ""
    model_patch: str | None

    @property
    def patch(self) -> str:
        """The patch, "" where there is none."""
        text = self.model_patch or ""
        return text if text.strip() else ""


@dataclass(frozen=True, slots=True)
class Predictions:
    """By id in the order of the file, each id once. `problems` are entries that do not count."""

    by_id: dict[str, Prediction]
    problems: tuple[Problem, ...]


def read_predictions(path: Path) -> Predictions:
    """All entries of a file. Raises ConfigurationError when it is none of the forms."""
    found: dict[str, Prediction] = {}
    places: dict[str, str] = {}
    problems: list[Problem] = []
    for place, key, value in _entries(path):
        entry = _prediction(place, key, value)
        if isinstance(entry, Problem):
            problems.append(entry)
            continue
        name = entry.instance_id
        if name in found:
            what = "the same again" if entry == found[name] else "another patch"
            reason = f"{name}: {what}, first at {places[name]}; the first counts"
            problems.append(Problem("duplicate-prediction", place, reason, name))
            continue
        found[name], places[name] = entry, place
    return Predictions(found, tuple(problems))


def _prediction(place: str, key: str | None, value: Any) -> Prediction | Problem:
    if isinstance(value, Problem):
        return value
    if key is not None and isinstance(value, dict):
        named = value.setdefault("instance_id", key)
        if named != key:
            reason = f"instance_id: {named!r} under the key {key!r}"
            return Problem("bad-prediction", place, reason, key)
    try:
        return Prediction.model_validate(value)
    except ValidationError as error:
        if not isinstance(value, dict):
            return Problem("bad-prediction", place, "not a JSON object", key or "")
        where, what = mistake_in(error, _EXPECTED, value)
        return Problem("bad-prediction", place, f"{'.'.join(map(str, where))}: {what}", key or "")


def _entries(path: Path) -> Iterator[tuple[str, str | None, Any]]:
    """Place, key (of the dictionary form) and value of each entry."""
    try:
        data = path.read_bytes().removeprefix(_MARK)
    except OSError as error:
        raise ConfigurationError(
            f"--predictions {path}: {error.strerror or error}; give preds.json or all_preds.jsonl"
        ) from None
    value = _whole(data)
    if isinstance(value, list):
        for number, each in enumerate(value, start=1):
            yield place_of(path, number, row=True), None, each
    elif isinstance(value, dict) and "instance_id" not in value:
        for key, each in value.items():
            yield f"{path}: {key}", key, each
    else:
        yield from _lines(path, data)


def _whole(data: bytes) -> Any:
    """The file as one JSON value; None where it is not one."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _lines(path: Path, data: bytes) -> Iterator[tuple[str, str | None, Any]]:
    if data.lstrip()[:1] not in (b"{", b""):
        raise ConfigurationError(
            f"--predictions {path}: neither JSON nor JSON lines; give preds.json or all_preds.jsonl"
        )
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            place = place_of(path, number)
            try:
                yield place, None, json.loads(line)
            except (ValueError, RecursionError) as error:
                yield place, None, Problem("bad-prediction", place, f"not valid JSON ({error})")
