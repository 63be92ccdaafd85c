"""Approximate search of large collections: inverted lists in files beside the SQLite file.

A collection has a folder with the lists (centroids, trained on a sample of all vectors), shards
(int8 vectors by list, memory-mapped) and a manifest that names these files. Rows of the store are
never renumbered and their vectors never change, so an index of rows up to a number stays valid.
Later rows are searched exactly until there are many. Removed rows are dropped when results are
looked up. The manifest is replaced atomically at the end, so an interrupted build does not change
the index.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.errors import StoreUnreachable
from agent.search.stores.exact import NEAR, NearRows
from agent.search.stores.sqlite.inverted import (
    LEAST,
    IndexManifest,
    Lists,
    read_lists,
    read_manifest,
    read_shard,
    scaled,
    search,
    train,
    write_lists,
    write_shard,
)
from agent.shared.files import replace_file
from agent.types.events import StageProgress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.search.stores.sqlite.inverted import IndexFile, VectorReader
    from agent.types.protocols import Reporter

# a shard up to this many times larger than the new vectors is rewritten together with them
_MERGED = 4

_OVER = 4  # candidates per result, because int8 rounding reorders close neighbours
# Candidates with a score this much lower are skipped, because a lookup may read from disk. The
# value is twice the standard deviation of the int8 error in the difference of two cosines.
_MARGIN = 0.009
_MOST = 4_096  # maximum candidates looked up for a query: 30 ms


class Building:
    """One build of an index in `folder`.

    `capacity`: maximum vectors in a shard. Code that uses all cores runs in `apart` (see
    `inverted.train`).
    """

    def __init__(
        self,
        folder: Path,
        reading: VectorReader,
        apart: Executor,
        capacity: int,
        progress: Callable[[int, int], None],
    ) -> None:
        self._folder = folder
        self._reading = reading
        self._apart = apart
        self._capacity = capacity
        self._progress = progress

    def run(self, before: IndexManifest, lists: Lists | None) -> IndexManifest:
        """Add the rows after `before.last`. Without `lists`, train them on those rows first.

        Raises OSError and RuntimeError if files cannot be written.
        """
        rows = self._reading.rows(before.last)
        self._progress(0, len(rows))
        if lists is None:
            lists = train(self._reading, rows, before.dimension, self._apart)
            before = before.model_copy(update={"trained": len(rows)})
            if lists is None:  # all vectors are zero
                return before.model_copy(update={"last": int(rows[-1]) if len(rows) else 0})
            before = before.model_copy(update={"lists": write_lists(lists, self._folder)})
        filling = _Filling(self._folder, lists, self._apart, self._capacity, before.shards)
        filling.take_up(len(rows))
        last, done = before.last, 0
        while True:
            some, vectors = self._reading.after(last)
            if not len(some):
                break
            filling.add(some, vectors)
            last, done = int(some[-1]), done + len(some)
            self._progress(done, len(rows))
        filling.put_away()
        return before.model_copy(update={"last": last, "shards": tuple(filling.shards)})


class _Filling:
    """The shards of an index during a build, including the unfinished one."""

    def __init__(
        self,
        folder: Path,
        lists: Lists,
        apart: Executor,
        capacity: int,
        shards: tuple[IndexFile, ...],
    ) -> None:
        self.shards = list(shards)
        self._folder = folder
        self._lists = lists
        self._apart = apart
        self._capacity = capacity
        self._shard = lists.shard()

    def take_up(self, size: int) -> None:
        """Continue with the last shards if they are not much larger than the `size` new vectors.

        This keeps the number of shards low and rarely rewrites a large one.
        """
        while self.shards and self.shards[-1].count <= min(_MERGED * size, self._capacity - size):
            found = read_shard(self._folder, self.shards[-1], self._lists, mapped=False)
            if found is None:
                return
            self._lists.merge(self._shard, found)
            size += self.shards.pop().count

    def add(self, rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Add (n, d) vectors except zero vectors, which no query is close to."""
        real = np.flatnonzero(vectors.any(axis=1))
        while len(real):
            room = self._capacity - int(self._shard.ntotal)
            part, real = real[:room], real[room:]
            self._apart.submit(self._shard.add_with_ids, scaled(vectors[part]), rows[part]).result()
            if len(part) == room:
                self.put_away()

    def put_away(self) -> None:
        """Write the unfinished shard unless it is empty."""
        if self._shard.ntotal:
            self.shards.append(write_shard(self._shard, self._folder))
            self._shard = self._lists.shard()


STAGE = "vector index"
SHARD = 400_000_000
"""Bytes of the vectors in a shard: a million vectors at d = 384.

A build holds this much in memory. Four smaller shards would be cheaper to rewrite, but a query over
320 lists in each took 3.4 ms instead of 1.8.
"""

_MANIFEST = "index.json"
_LOCK = "lock"


class AnnIndex:
    """The index of one collection. Not thread-safe; the store serialises calls."""

    def __init__(
        self, folder: Path, dimension: int, reporter: Reporter, *, shard: int = SHARD
    ) -> None:
        self._capacity = max(1, shard // dimension)
        self._folder = folder
        self._report = reporter
        self._dimension = dimension
        self._manifest = IndexManifest(dimension=dimension)
        self._lists: Lists | None = None
        self._shards: Mapping[str, Any] = {}
        self._seen: tuple[int, int] | None = None

    @property
    def last(self) -> int:
        """Return the highest row in the index."""
        return self._manifest.last

    @property
    def trained(self) -> int:
        """Return the number of vectors when the lists were trained."""
        return self._manifest.trained

    @property
    def count(self) -> int:
        """Return the number of vectors, including removed ones."""
        return sum(shard.count for shard in self._manifest.shards)

    def twin(self) -> AnnIndex:
        """Return a second object for the same index, to build with while this one searches."""
        return copy(self)

    def refresh(self) -> None:
        """Load the index if another process has written it.

        Damaged or foreign files are ignored.
        """
        path = self._folder / _MANIFEST
        while (seen := _stamp(path)) != self._seen:
            manifest = read_manifest(path, self._dimension)
            # otherwise the manifest was replaced meanwhile
            if not self._open(manifest) and _stamp(path) == seen:
                self._open(IndexManifest(dimension=self._dimension))
            self._seen = seen

    def _open(self, manifest: IndexManifest) -> bool:
        """Open all files of a manifest; return whether all were valid."""
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
        """Return the rows of about `count` nearest vectors, best first, and their coarse
        cosines.
        """
        if self._lists is None:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        return search(self._lists, list(self._shards.values()), query, count)

    def build(self, reading: VectorReader, *, anew: bool) -> bool:
        """Add the rows after `last`, or all rows if `anew`; return whether the index was built.

        Returns False if another process is building. Raises StoreUnreachable if the files cannot be
        written; the index is then unchanged.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _alone(self._folder) as alone, ThreadPoolExecutor(1) as apart:
                if not alone:
                    return False
                self.refresh()
                if anew or self._lists is None:
                    self._open(IndexManifest(dimension=self._dimension))
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
        """Remove unused files: old shards, drafts, files of an older format."""
        used = {_MANIFEST, _LOCK, *self._manifest.files}
        for path in self._folder.iterdir():
            if path.name not in used:
                path.unlink(missing_ok=True)  # processes that have it mapped can still read it

    def _progress(self, done: int, total: int) -> None:
        """Report the progress of a build."""
        self._report(StageProgress(STAGE, done, max(done, total)))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Yield whether this process holds the build lock.

    The lock is released when the process ends.
    """
    with (folder / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def near_rows(
    index: AnnIndex,
    query: NDArray[np.float32],
    top_k: int,
    look_up: Callable[[NDArray[np.int64]], NearRows],
    *,
    every: bool,
) -> NearRows | None:
    """Return near rows with exact cosines; None if too few of them are selected.

    `look_up` scores the rows that are present and selected, `every` says that all are selected.
    """
    count = max(LEAST, _OVER * top_k)
    promising = every
    while True:
        near, coarse = index.search(query, count)
        rows = near[: _promising(coarse, top_k)] if promising else near
        found = look_up(rows)
        if len(found.rows) >= top_k:
            clear = len(rows) < len(near) or not _may_tie(found, top_k)
            if clear or count >= _MOST:
                return found
        if count >= _MOST:
            return None
        promising = False  # some rows were removed
        count *= 4


def _promising(coarse: NDArray[np.float32], top_k: int) -> int:
    """Return how many candidates, best first, may be among the best `top_k` despite int8 errors."""
    if len(coarse) <= top_k:
        return len(coarse)
    return int(np.count_nonzero(coarse >= coarse[top_k - 1] - _MARGIN))


def _may_tie(found: NearRows, top_k: int) -> bool:
    """Whether more entries may score the same as number `top_k`. Equal vectors tie by id."""
    falling = -np.sort(-found.cosines)
    return bool(falling[top_k - 1] - falling[-1] <= NEAR)
