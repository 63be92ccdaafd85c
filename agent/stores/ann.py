"""Approximate search of more vectors than an exact one is quick for: graphs of usearch in files.

A collection has a folder beside the SQLite file, of shards (each a graph over up to 250,000 vectors
in int8, mapped into memory) and a manifest that names them. Rows of the store are never renumbered
and their vectors never change: an index of rows up to some number stays right for ever. What came
later is searched exactly until it is much; what is gone is dropped when results are looked up. The
manifest is replaced last, in one step: a build that is killed leaves the index as it was.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.errors import StoreUnreachable
from agent.events import StageProgress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter

    # Rows after a number, ascending, with their vectors (n, d) of length 1 or 0; empty at the end.
    Reading = Callable[[int], tuple[NDArray[np.int64], NDArray[np.float32]]]

STAGE = "vector index"
SHARD = 250_000
"""Vectors of a shard: 133 MB of 384 numbers, what adding to the last one rewrites."""

_FORMAT = 1
_MANIFEST = "index.json"

# Links a node (twice as many on the ground floor). Six would bring a graph to 29% of the vectors in
# float32, these to 35% (the int8 numbers alone are 25%), but with six the recall of a million
# vectors falls to 0.78 (`python -m benchmarks.vectors`).
_CONNECTIVITY = 16
_EXPANSION_ADD = 128
_EXPANSION_SEARCH = 192


class _Shard(BaseModel):
    """A graph in a file: its length and checksum tell whether it is whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str = Field(pattern=r"^shard-[0-9a-f]{32}\.usearch$")
    last: int  # the highest row that was looked at for it
    count: int
    size: int
    digest: str


class _Manifest(BaseModel):
    """What is searched. Rows after `last` are not in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = _FORMAT
    dimension: int
    shards: tuple[_Shard, ...] = ()

    @property
    def last(self) -> int:
        return self.shards[-1].last if self.shards else 0

    @property
    def count(self) -> int:
        return sum(shard.count for shard in self.shards)


def is_installed() -> bool:
    """Whether the extra `ann` is there."""
    return find_spec("usearch") is not None


class AnnIndex:
    """The index of one collection. Not safe for threads: its store takes care of that."""

    def __init__(
        self, folder: Path, dimension: int, reporter: Reporter, *, shard: int = SHARD
    ) -> None:
        self.shard = shard
        self._folder = folder
        self._report = reporter
        self._dimension = dimension
        self._manifest = _Manifest(dimension=dimension)
        self._graphs: Mapping[str, Any] = {}
        self._seen: tuple[int, int] | None = None

    @property
    def last(self) -> int:
        """The highest row that it knows of."""
        return self._manifest.last

    @property
    def count(self) -> int:
        """How many vectors it holds, those that are gone included."""
        return self._manifest.count

    def twin(self) -> AnnIndex:
        """Another object of the same index: to build with, while this one goes on searching."""
        return copy(self)

    def refresh(self) -> None:
        """Look whether another process has replaced it. Damaged or foreign files are no index."""
        seen = _stamp(self._folder / _MANIFEST)
        if seen == self._seen:
            return
        manifest = _read(self._folder / _MANIFEST, self._dimension)
        known = self._graphs
        graphs = {one.file: known.get(one.file) or self._open(one) for one in manifest.shards}
        if any(graph is None for graph in graphs.values()):
            manifest, graphs = _Manifest(dimension=self._dimension), {}
        self._manifest, self._graphs, self._seen = manifest, graphs, seen

    def _open(self, shard: _Shard) -> Any | None:
        """A shard, mapped into memory; None where it is not what was written."""
        from usearch.index import Index

        path = self._folder / shard.file
        try:
            if path.stat().st_size != shard.size or _digest(path) != shard.digest:
                return None
            graph = Index.restore(str(path), view=True, expansion_search=_EXPANSION_SEARCH)
        except (OSError, RuntimeError, ValueError):
            return None
        if graph is None or (graph.ndim, len(graph)) != (self._dimension, shard.count):
            return None
        return graph

    def search(self, query: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Rows of the about `count` nearest of each shard."""
        graphs = self._graphs.values()
        found = [graph.search(query, min(count, len(graph)), threads=1) for graph in graphs]
        if not found:
            return np.empty(0, np.int64)
        return np.concatenate([one.keys for one in found]).astype(np.int64)

    def build(self, reading: Reading, total: int, *, anew: bool) -> bool:
        """Take in the rows after `last`, or all of them `anew`; whether it was done.

        False where another process is at it. `total` is how many are expected, for the progress.
        Raises StoreUnreachable where the files cannot be written; the index is then as it was.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _alone(self._folder) as alone:
                if not alone:
                    return False
                self.refresh()
                before = _Manifest(dimension=self._dimension) if anew else self._manifest
                self._replace(_Building(self, before, reading, total).run())
                self.refresh()
        except (OSError, RuntimeError) as error:
            raise StoreUnreachable(
                f"vector index {self._folder} cannot be written ({error}); free some space"
            ) from None
        return True

    def _replace(self, shards: Sequence[_Shard]) -> None:
        manifest = _Manifest(dimension=self._dimension, shards=tuple(shards))
        draft = self._folder / f"{_MANIFEST}.tmp"
        draft.write_text(manifest.model_dump_json())
        _synced(draft)
        draft.replace(self._folder / _MANIFEST)
        named = {shard.file for shard in shards}
        for path in self._folder.glob("shard-*"):
            if path.name not in named:
                path.unlink(missing_ok=True)  # who has it mapped keeps it

    def progress(self, done: int, total: int) -> None:
        """Say how far a build is."""
        self._report(StageProgress(STAGE, done, max(done, total)))

    def reopened(self, shard: _Shard) -> Any | None:
        """A shard to add to; None where it is not what was written."""
        from usearch.index import Index

        if self._open(shard) is None:
            return None
        path = str(self._folder / shard.file)
        return Index.restore(
            path, view=False, connectivity=_CONNECTIVITY, expansion_add=_EXPANSION_ADD
        )

    def saved(self, graph: Any, last: int) -> _Shard:
        """Write a shard under a name of its own."""
        draft = self._folder / "shard.tmp"
        graph.save(str(draft))
        _synced(draft)
        digest = _digest(draft)
        path = self._folder / f"shard-{digest}.usearch"
        size = draft.stat().st_size
        draft.replace(path)
        return _Shard(file=path.name, last=last, count=len(graph), size=size, digest=digest)

    def empty(self) -> Any:
        """A graph without nodes."""
        from usearch.index import Index

        return Index(
            ndim=self._dimension,
            metric="ip",
            dtype="i8",
            connectivity=_CONNECTIVITY,
            expansion_add=_EXPANSION_ADD,
        )


class _Building:
    """One build: shards that are full stay, the last one is gone on with."""

    def __init__(self, index: AnnIndex, before: _Manifest, reading: Reading, total: int) -> None:
        self._index = index
        self._reading = reading
        self._total = total
        self._shards = list(before.shards)
        self._last = before.last
        self._done = before.count
        self._graph = index.empty()

    def run(self) -> list[_Shard]:
        """All shards."""
        self._take_up()
        while True:
            rows, vectors = self._reading(self._last)
            if not len(rows):
                break
            self._add(rows, vectors)
        self._put_away()
        return self._shards

    def _take_up(self) -> None:
        if self._shards and self._shards[-1].count < self._index.shard:
            graph = self._index.reopened(self._shards[-1])
            if graph is not None:
                self._graph = graph
                self._shards.pop()

    def _add(self, rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        real = np.flatnonzero(vectors.any(axis=1))  # zero vectors are near to nothing
        start = 0
        while start < len(real):
            room = self._index.shard - len(self._graph)
            if room <= 0:
                self._put_away()
                continue
            part = real[start : start + room]
            self._graph.add(rows[part].astype(np.uint64), vectors[part], threads=_threads())
            self._last = int(rows[part[-1]])
            start += room
        self._last = int(rows[-1])
        self._done += len(rows)
        self._index.progress(self._done, self._total)

    def _put_away(self) -> None:
        if len(self._graph):
            self._shards.append(self._index.saved(self._graph, self._last))
            self._graph = self._index.empty()


def _threads() -> int:
    return os.cpu_count() or 1


def _read(path: Path, dimension: int) -> _Manifest:
    """An empty manifest where there is none of this format and dimension."""
    nothing = _Manifest(dimension=dimension)
    try:
        found = _Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return nothing
    return found if (found.version, found.dimension) == (_FORMAT, dimension) else nothing


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _digest(path: Path) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _synced(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether nobody else is building. The lock goes with its process, however that ends."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
