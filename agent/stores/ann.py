"""Approximate search of more vectors than an exact one is quick for: inverted lists in files.

A collection has a folder beside the SQLite file: the lists (centroids, trained on a sample of all
vectors), shards (each the int8 numbers of many vectors by list, mapped into memory) and a manifest
that names them. Rows of the store are never renumbered and their vectors never change: an
index of rows up to some number stays right for ever. What came later is searched exactly until it
is much; what is gone is dropped when results are looked up. The manifest is replaced last, in one
step: a build that is killed leaves the index as it was.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.durable import replace_file
from agent.errors import StoreUnreachable
from agent.events import StageProgress
from agent.stores.ann_building import Building
from agent.stores.ann_manifest import Manifest, read_manifest
from agent.stores.inverted import Lists, read_lists, read_shard, search

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter
    from agent.stores.ann_reading import Reading

STAGE = "vector index"
SHARD = 400_000_000
"""Bytes of a shard's numbers: a million vectors of 384, what a build holds in memory. Four shards
for them would cost less to write again, but a query that turned to 320 lists in each took 3.4 ms
instead of 1.8."""

_MANIFEST = "index.json"
_LOCK = "lock"


class AnnIndex:
    """The index of one collection. Not safe for threads: its store takes care of that."""

    def __init__(
        self, folder: Path, dimension: int, reporter: Reporter, *, shard: int = SHARD
    ) -> None:
        self._capacity = max(1, shard // dimension)
        self._folder = folder
        self._report = reporter
        self._dimension = dimension
        self._manifest = Manifest(dimension=dimension)
        self._lists: Lists | None = None
        self._shards: Mapping[str, Any] = {}
        self._seen: tuple[int, int] | None = None

    @property
    def last(self) -> int:
        """The highest row that it knows of."""
        return self._manifest.last

    @property
    def trained(self) -> int:
        """How many vectors there were when its lists were made."""
        return self._manifest.trained

    @property
    def count(self) -> int:
        """How many vectors it holds, those that are gone included."""
        return sum(shard.count for shard in self._manifest.shards)

    def twin(self) -> AnnIndex:
        """Another object of the same index: to build with, while this one goes on searching."""
        return copy(self)

    def refresh(self) -> None:
        """Look whether another process has replaced it. Damaged or foreign files are no index."""
        path = self._folder / _MANIFEST
        while (seen := _stamp(path)) != self._seen:
            manifest = read_manifest(path, self._dimension)
            if not self._open(manifest) and _stamp(path) == seen:  # else replaced meanwhile
                self._open(Manifest(dimension=self._dimension))
            self._seen = seen

    def _open(self, manifest: Manifest) -> bool:
        """Whether all that it names is there, and open now."""
        lists, shards = None, {}
        if manifest.lists is not None:
            same = manifest.lists == self._manifest.lists
            lists = self._lists if same else None
            lists = lists or read_lists(self._folder, manifest.lists, self._dimension)
            if lists is None:
                return False
            for one in manifest.shards:
                known = self._shards.get(one.file) if same else None
                shards[one.file] = known or read_shard(self._folder, one, lists)
        if None in shards.values():
            return False
        self._manifest, self._lists, self._shards = manifest, lists, shards
        return True

    def search(
        self, query: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows of the about `count` nearest, best first, and their cosines, which are coarse."""
        if self._lists is None:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        return search(self._lists, list(self._shards.values()), query, count)

    def build(self, reading: Reading, *, anew: bool) -> bool:
        """Take in the rows after `last`, or all of them `anew`; whether it was done.

        False where another process is at it. Raises StoreUnreachable where the files cannot be
        written; the index is then as it was.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _alone(self._folder) as alone, ThreadPoolExecutor(1) as apart:
                if not alone:
                    return False
                self.refresh()
                if anew or self._lists is None:
                    self._open(Manifest(dimension=self._dimension))
                building = Building(self._folder, reading, apart, self._capacity, self._progress)
                try:
                    made = building.run(self._manifest, self._lists)
                    replace_file(self._folder / _MANIFEST, [made.model_dump_json().encode()])
                finally:
                    self._seen = None
                    self.refresh()
                    self._tidy()
        except (OSError, RuntimeError) as error:
            raise StoreUnreachable(
                f"vector index {self._folder} cannot be written ({error}); free some space"
            ) from None
        return True

    def _tidy(self) -> None:
        """Remove what is not in use: old shards, drafts, files of an older format."""
        used = {_MANIFEST, _LOCK, *self._manifest.files}
        for path in self._folder.iterdir():
            if path.name not in used:
                path.unlink(missing_ok=True)  # who has it mapped keeps it

    def _progress(self, done: int, total: int) -> None:
        """Say how far a build is."""
        self._report(StageProgress(STAGE, done, max(done, total)))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether nobody else is building. The lock goes with its process, however that ends."""
    with (folder / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
