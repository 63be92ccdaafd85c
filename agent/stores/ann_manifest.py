"""What an index consists of: its files, by length and checksum, and the rows that are in them."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_FORMAT = 2  # 1: graphs of usearch


class IndexFile(BaseModel):
    """A file of an index: its length and checksum tell whether it is whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str = Field(pattern=r"^(lists|shard)-[0-9a-f]{32}\.faiss$")
    count: int = Field(ge=1)  # lists, or vectors of a shard
    size: int
    digest: str


class Manifest(BaseModel):
    """Rows up to `last`, in lists that were made when there were `trained` vectors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = _FORMAT
    dimension: int
    last: int = 0
    trained: int = 0
    lists: IndexFile | None = None
    shards: tuple[IndexFile, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files that belong to it."""
        return tuple(one.file for one in (self.lists, *self.shards) if one is not None)


def read_manifest(path: Path, dimension: int) -> Manifest:
    """An empty one where there is none of this format and dimension."""
    nothing = Manifest(dimension=dimension)
    try:
        found = Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return nothing
    return found if (found.version, found.dimension) == (_FORMAT, dimension) else nothing
