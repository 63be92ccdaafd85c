"""Reading data sets of issues whose answers are known: SWE-bench rows, JSON lines or an array."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from agent.errors import ConfigurationError
from agent.evaluation.patches import parse_patch

Split = Literal["tune", "held-out", "all"]

SPLIT_SALT = "patchshot-retrieval-1"
"""Never to be changed: it decides what has been looked at while tuning."""

TUNE_SHARE = 0.6

# A fork holds its parent's code and bugs: both belong on the same side of the split.
_FORKS: Mapping[str, str] = MappingProxyType({"yt-dlp/yt-dlp": "ytdl-org/youtube-dl"})


_DIFF = re.compile(r"^(diff --git |\+\+\+ )", re.MULTILINE)


def _readable(patch: str | None) -> str | None:
    if patch is not None:
        parse_patch(patch)
    return patch


class Instance(BaseModel):
    """One row: an issue, the commit it was reported against, and what was changed to solve it.

    What was changed is named by `gold_functions` (and `gold_files`), or else read from `patch`.
    Names are `path.py:Class.method` and `path.py:function`.
    """

    # Published sets carry more fields (hints, versions, dates), each its own.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    instance_id: str = Field(min_length=1)
    repo: str = Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")
    base_commit: str = Field(pattern=r"^[0-9a-f]{7,40}$")
    problem_statement: str
    patch: Annotated[str | None, AfterValidator(_readable)] = None
    test_patch: str | None = None
    gold_files: tuple[str, ...] | None = None
    gold_functions: tuple[Annotated[str, Field(pattern=r"^[^:]+:[^:]+$")], ...] | None = None

    def digest(self) -> str:
        """SHA-256 of what is asked (repository, commit, problem), 16 hex digits.

        Two data sets may call different issues by one id.
        """
        asked = json.dumps([self.repo, self.base_commit, self.problem_statement])
        return hashlib.sha256(asked.encode()).hexdigest()[:16]

    def names_answer(self) -> bool:
        """Whether there is anything to judge by: functions, files, or a diff, even of new files."""
        named = self.gold_functions or self.gold_files
        return bool(named) or _DIFF.search(self.patch or "") is not None


def load_dataset(path: Path) -> tuple[Instance, ...]:
    """All rows of a file, in its order.

    Raises ConfigurationError, naming the file and the line, for what is no row or comes twice.
    """
    places: dict[str, str] = {}
    instances: list[Instance] = []
    for place, value in _values(path):
        instance = _instance(value, place)
        first = places.setdefault(instance.instance_id, place)
        if first != place:
            raise ConfigurationError(
                f"{place}: {instance.instance_id} again, first at {first}; remove one of them"
            )
        instances.append(instance)
    if not instances:
        raise ConfigurationError(f"{path}: no rows; give a data set as JSON lines or a JSON array")
    return tuple(instances)


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """Each row's place, for messages, and its JSON value."""
    text = _text(path)
    if text.lstrip().startswith("["):
        rows = _json(text, str(path))
        yield from ((f"{path}: row {number}", row) for number, row in enumerate(rows, start=1))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"{path}:{number}"
            yield place, _json(line, place)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file; --dataset takes a JSONL file") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 (byte {error.start}); convert it") from None


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{place}: not valid JSON ({error}); correct it") from None


def _instance(value: Any, place: str) -> Instance:
    try:
        # Back to JSON: in strict mode only JSON's arrays may stand for tuples.
        return Instance.model_validate_json(json.dumps(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "row"
        raise ConfigurationError(f"{place}: {where}: {first['msg']}; correct the row") from None


def part_of(instances: tuple[Instance, ...], split: Split) -> tuple[Instance, ...]:
    """The instances of one side of the split: whole projects, so that nothing tuned on is measured.

    A project's side depends on its name only, whatever else is in the data set.
    """
    if split == "all":
        return instances
    return tuple(i for i in instances if is_for_tuning(i.repo) == (split == "tune"))


def is_for_tuning(repo: str) -> bool:
    """Whether a project belongs to the 60% to tune on, by SHA-256 of its name."""
    name = repo.lower()
    digest = hashlib.sha256(f"{SPLIT_SALT}:{_FORKS.get(name, name)}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < TUNE_SHARE * 2**64
