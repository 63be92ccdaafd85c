"""The building of an index: lists are made once, what is new goes into shards."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.stores.ann_manifest import Manifest
from agent.stores.inverted import Lists, read_shard, scaled, train, write_lists, write_shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.stores.ann_manifest import IndexFile
    from agent.stores.ann_reading import Reading

_MERGED = 4  # a shard so many times as large as what is new is written again with it


class Building:
    """One build of an index in `folder`.

    `capacity`: vectors of a shard. What uses all cores runs `apart` (see `inverted.train`).
    """

    def __init__(
        self,
        folder: Path,
        reading: Reading,
        apart: Executor,
        capacity: int,
        progress: Callable[[int, int], None],
    ) -> None:
        self._folder = folder
        self._reading = reading
        self._apart = apart
        self._capacity = capacity
        self._progress = progress

    def run(self, before: Manifest, lists: Lists | None) -> Manifest:
        """Take in the rows after `before.last`; without `lists`, they are made for those rows.

        Raises OSError and RuntimeError where files cannot be written.
        """
        rows = self._reading.rows(before.last)
        self._progress(0, len(rows))
        if lists is None:
            lists = train(self._reading, rows, before.dimension, self._apart)
            before = before.model_copy(update={"trained": len(rows)})
            if lists is None:  # there are only zero vectors
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
    """Shards, and the one that is being filled."""

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
        """Go on with the last shards that are not much larger than the `size` vectors to come.

        So there are few shards, and what is large is seldom written again.
        """
        while self.shards and self.shards[-1].count <= min(_MERGED * size, self._capacity - size):
            found = read_shard(self._folder, self.shards[-1], self._lists, mapped=False)
            if found is None:
                return
            self._lists.merge(self._shard, found)
            size += self.shards.pop().count

    def add(self, rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Add (n, d) vectors, zero vectors left out: they are near to nothing."""
        real = np.flatnonzero(vectors.any(axis=1))
        while len(real):
            room = self._capacity - int(self._shard.ntotal)
            part, real = real[:room], real[room:]
            self._apart.submit(self._shard.add_with_ids, scaled(vectors[part]), rows[part]).result()
            if len(part) == room:
                self.put_away()

    def put_away(self) -> None:
        """Write the shard that is being filled, where there is something in it."""
        if self._shard.ntotal:
            self.shards.append(write_shard(self._shard, self._folder))
            self._shard = self._lists.shard()
