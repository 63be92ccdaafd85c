"""The training pairs on disk: one JSON line per commit, one file per project."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.errors import ConfigurationError
from agent.evaluation.retrieval import counted_name
from agent.types import ChunkKind

MANIFEST = "manifest.json"
_FROZEN = ConfigDict(frozen=True, extra="forbid")

_Oid = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
_Repo = Annotated[str, Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")]


class FunctionText(BaseModel):
    """A function, method or class header as it was at the parent commit.

    Lines are 1-based and inclusive. `text` is cut off at `mining.MAX_TEXT_CHARS`.
    """

    model_config = _FROZEN

    path: str
    symbol: str
    kind: ChunkKind
    start: int
    end: int
    text: str

    @property
    def name(self) -> str:
        """`path:symbol` as the evaluation counts it: a constructor is counted as its class."""
        return counted_name(self.path, self.symbol)

    @property
    def leaf(self) -> str:
        """The last part of the counted name: the function's, or the class's for a constructor."""
        return self.name.rpartition(":")[2].rpartition(".")[2]


class Pair(BaseModel):
    """A commit: its message, and the existing functions that it changed.

    `fix`: the message reads like the repair of a fault. `test_added`: the start of the lines that
    the commit adds to tests. `names_in_message`: last parts of the names of changed functions that
    are whole words in the message. `negatives`: a sample of the unchanged functions of the same
    files.
    """

    model_config = _FROZEN

    repo: _Repo
    commit: _Oid
    parent: _Oid
    subject: str = Field(min_length=1)
    body: str
    fix: bool
    test_added: str
    names_in_message: tuple[str, ...]
    functions: tuple[FunctionText, ...] = Field(min_length=1)
    negatives: tuple[FunctionText, ...]

    @property
    def query(self) -> str:
        """Return subject and body as one text, in the form of an issue."""
        return f"{self.subject}\n\n{self.body}" if self.body else self.subject


class ProjectSummary(BaseModel):
    """Counts for a project. `first` and `last` are the oldest and newest commit in a pair.

    `seen` commits changed Python files; `eligible` of them passed the filters that need no diff.
    `rules` and `max_*` are the settings used; `named` counts pairs with `names_in_message`.
    """

    model_config = _FROZEN

    repo: _Repo
    tip: _Oid
    rules: int
    max_commits: int
    max_pairs: int
    first: str
    last: str
    seen: int
    eligible: int
    kept: int
    fixes: int
    functions: int
    named: int


class PairsManifest(BaseModel):
    """The projects and rules behind a folder of pairs. Projects are sorted by name."""

    model_config = _FROZEN

    projects: tuple[ProjectSummary, ...] = ()


def pairs_path(folder: Path, repo: str) -> Path:
    """Return the path of a project's file: `owner+name.jsonl`."""
    return folder / f"{repo.replace('/', '+')}.jsonl"


def read_pairs(folder: Path) -> Iterator[Pair]:
    """Yield all pairs of a folder: files sorted by name, lines in file order.

    Raises ConfigurationError with file and line for an invalid line.
    """
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise ConfigurationError(f"{folder}: no pairs; run `python -m training.mining` first")
    for file in files:
        yield from read_project(file)


def read_project(file: Path) -> Iterator[Pair]:
    """Yield the pairs of one file. Raises ConfigurationError like `read_pairs`."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield Pair.model_validate_json(line)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(str(part) for part in first["loc"]) or "row"
                raise ConfigurationError(
                    f"{file}:{number}: {where}: {first['msg']}; mine the project again"
                ) from None


def write_pairs(folder: Path, repo: str, pairs: Iterable[Pair]) -> None:
    """Write a project's file atomically: readers never see a part of it."""
    write_whole(
        pairs_path(folder, repo), (pair.model_dump_json().encode() + b"\n" for pair in pairs)
    )


def read_manifest(folder: Path) -> PairsManifest | None:
    """Return the manifest of a folder; None if it is missing or has another format."""
    try:
        return PairsManifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def write_manifest(folder: Path, manifest: PairsManifest) -> None:
    """Write the manifest, with its projects sorted by name."""
    projects = tuple(sorted(manifest.projects, key=lambda project: project.repo))
    text = manifest.model_copy(update={"projects": projects}).model_dump_json(indent=1)
    write_whole(folder / MANIFEST, (text.encode(), b"\n"))


# ------------------------------------------------------------------------------------------ writing


def write_whole(path: Path, parts: Iterable[bytes]) -> None:
    """Write or replace a file atomically: readers never see a part of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
