"""What each reader may know of a row.

`SolverTask` has the issue and no part of the answer, `GoldInstance` the answer that retrieval is
measured by, `ScoringInstance` the tests that decide about a patch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agent.datasets.changed_lines import parse_patch
from agent.datasets.rows import InputProblem, read_entries
from agent.errors import ConfigurationError
from agent.verify import IdList

Split = Literal["tune", "held-out", "all"]

SPLIT_SALT = "patchshot-retrieval-1"
"""Must never change: it decides which projects have been looked at while tuning."""

TUNE_SHARE = 0.6

# A fork holds its parent's code and bugs: both belong on the same side of the split.
_FORKS: Mapping[str, str] = MappingProxyType({"yt-dlp/yt-dlp": "ytdl-org/youtube-dl"})

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_LONGEST_STEM = 80  # characters of any other id in a folder name, which has at most 255 bytes


def _check_diff(patch: str | None) -> str | None:
    if patch is not None:
        parse_patch(patch)
    return patch


class _Instance(BaseModel):
    # Each published set has further fields of its own (hints, dates, environments).
    model_config = ConfigDict(frozen=True)

    instance_id: str = Field(min_length=1)
    repo: str = Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")
    base_commit: str = Field(pattern=r"^[0-9a-f]{7,40}$")


class SolverTask(_Instance):
    """Everything that a solver is told of an instance."""

    problem_statement: str


class GoldInstance(_Instance):
    """An issue, the commit it was reported against, and what was changed to solve it.

    `gold_functions` (and `gold_files`) name what was changed; without them it is read from `patch`.
    Names are `path.py:Class.method` and `path.py:function`.
    """

    problem_statement: str
    patch: Annotated[str | None, AfterValidator(_check_diff)] = None
    test_patch: str | None = None
    gold_files: tuple[str, ...] | None = None
    gold_functions: tuple[Annotated[str, Field(pattern=r"^[^:]+:[^:]+$")], ...] | None = None


class ScoringInstance(_Instance):
    """What scoring needs: the tests that decide, the test patch, and the row's own `patch`."""

    test_patch: str = ""
    patch: str | None = None
    version: str = ""
    fail_to_pass: IdList = Field((), alias="FAIL_TO_PASS")
    pass_to_pass: IdList = Field((), alias="PASS_TO_PASS")


def folder_name(instance_id: str) -> str:
    """Return the id if it is a plain file name, else a name with a digest of the id."""
    if _PLAIN_NAME.fullmatch(instance_id):
        return instance_id
    digest = hashlib.sha256(instance_id.encode("utf-8", "surrogatepass")).hexdigest()
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", instance_id).strip("-")
    return f"{stem[:_LONGEST_STEM]}~{digest[:16]}"


def load_dataset(path: Path) -> tuple[GoldInstance, ...]:
    """Return all rows of a file, in its order.

    Raises ConfigurationError, with the file and the line, for a row that cannot be used or that
    comes twice.
    """
    instances: list[GoldInstance] = []
    for instance in read_entries(path, GoldInstance):
        if isinstance(instance, InputProblem):
            raise ConfigurationError(f"{instance.place}: {instance.reason}; correct the row")
        instances.append(instance)
    if not instances:
        raise ConfigurationError(f"{path}: no rows; give a data set as JSON lines or a JSON array")
    return tuple(instances)


def part_of(instances: tuple[GoldInstance, ...], split: Split) -> tuple[GoldInstance, ...]:
    """Return the instances of one side of the split.

    The split keeps projects whole, so that no project is both tuned on and measured. The side of a
    project depends on its name only, whatever else is in the data set.
    """
    if split == "all":
        return instances
    return tuple(i for i in instances if is_for_tuning(i.repo) == (split == "tune"))


def is_for_tuning(repo: str) -> bool:
    """Return whether a project belongs to the 60% to tune on, by SHA-256 of its name."""
    name = repo.lower()
    digest = hashlib.sha256(f"{SPLIT_SALT}:{_FORKS.get(name, name)}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < TUNE_SHARE * 2**64
