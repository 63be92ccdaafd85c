"""From a snapshot to a corpus: cached where the content is known, freshly cut where not.

Files are kept in blocks, each of a group of files in path order: a warm query reads some dozens of
blocks. Beside them stands for each file in which block it is, so that a group some of whose files
are new takes the others from the blocks they are in.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agent.events import StageProgress
from agent.retrieval.blocks import HEAD_BYTES, Block, decode, encode, sizes_in
from agent.retrieval.candidates import target_files
from agent.retrieval.corpus import Corpus, CorpusBuilder
from agent.retrieval.groups import Group, Place, groups_of, record_keys
from agent.retrieval.pool import Built, Job, build_here, build_in_workers
from agent.retrieval.records import PieceEncoder
from agent.retrieval.store import DEFAULT_LIMIT, ReadThrough, Records, RecordStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.protocols import Reporter, Snapshot
    from agent.types import SourceFile

STAGE = "index"

POOL_MIN_BYTES = 3_000_000
"""Below this much source, starting workers (0.3 s each) costs more than it saves."""

_GROUPS_AT_ONCE = 64  # blocks read at a time: bounds memory
_JOB_BYTES = 4_000_000  # of source in one job: bounds the memory of a worker


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What a refresh found: files looked at, of these freshly cut, and chunks in all."""

    files: int
    built: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Index:
    """Loads corpora. `path` is the cache file (None: none), `workers` the most processes used.

    The file keeps within about `limit` bytes. `shared` opens records that several machines have in
    common (`agent.stores.records`), None for none.
    """

    reporter: Reporter
    path: Path | None = None
    workers: int | None = None
    limit: int = DEFAULT_LIMIT
    encoder: PieceEncoder | None = None
    shared: Callable[[], Records | None] | None = None

    def load(
        self,
        snapshot: Snapshot,
        files: Sequence[SourceFile],
        query: NDArray[np.uint64],
        cancel: threading.Event | None = None,
    ) -> Corpus:
        """The corpus of `files`, with the postings of the `query`'s terms (sorted hashes) only.

        Raises `pool.Cancelled` soon after `cancel` is set.
        """
        builder = CorpusBuilder(files, query)
        self._fill(snapshot, files, _WholeBlocks(builder), cancel)
        return builder.finish()

    def refresh(self, snapshot: Snapshot, cancel: threading.Event | None = None) -> IndexSummary:
        """Bring the cache up to date with what may be ranked. Raises `pool.Cancelled`.

        Of known blocks only the heads are read; damage further down is mended by who reads it.
        """
        files = target_files(snapshot)
        counter = _PieceCounter()
        built = self._fill(snapshot, files, counter, cancel)
        return IndexSummary(len(files), built, counter.pieces)

    def _fill(
        self,
        snapshot: Snapshot,
        files: Sequence[SourceFile],
        taker: _Taker,
        cancel: threading.Event | None,
    ) -> int:
        """Give `taker` every block; how many files were freshly cut."""
        with self._opened() as store:
            loading = _Loading(self, snapshot, files, taker, store)
            return loading.run(cancel or threading.Event())

    def _opened(self) -> RecordStore | ReadThrough:
        """What is kept, with what is shared behind it."""
        local = RecordStore(self.path, reporter=self.reporter, limit=self.limit)
        return local if self.shared is None else ReadThrough(local, self.shared)


class _Taker(Protocol):
    """What becomes of blocks: those that the store has, and those that are made."""

    def take(self, groups: Sequence[Group], store: Records) -> list[Group]:
        """Groups that are not known as a whole, or are known damaged."""
        ...

    def add(self, first: int, data: bytes) -> None:
        """Take the block, which was just made, of the files from number `first` on."""
        ...


@dataclass(frozen=True, slots=True)
class _WholeBlocks:
    """Hands blocks on to a corpus."""

    builder: CorpusBuilder

    def take(self, groups: Sequence[Group], store: Records) -> list[Group]:
        unknown = []
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            some = groups[start : start + _GROUPS_AT_ONCE]
            known = store.get([group.key for group in some])
            for group in some:
                block = decode(known[group.key]) if group.key in known else None
                if block is None or block.file_sizes.size != len(group.keys):
                    unknown.append(group)
                else:
                    self.builder.add(group.first, block)
        return unknown

    def add(self, first: int, data: bytes) -> None:
        self.builder.add(first, _own(data))


@dataclass(slots=True)
class _PieceCounter:
    """Counts pieces, for those who need no corpus."""

    pieces: int = 0

    def take(self, groups: Sequence[Group], store: Records) -> list[Group]:
        heads = store.heads([group.key for group in groups], HEAD_BYTES)
        unknown = []
        for group in groups:
            found = sizes_in(*heads[group.key]) if group.key in heads else None
            if found is None or found.files != len(group.keys):
                unknown.append(group)
            else:
                self.pieces += found.pieces
        return unknown

    def add(self, first: int, data: bytes) -> None:
        found = sizes_in(data[:HEAD_BYTES], len(data))
        self.pieces += found.pieces if found else 0


def _own(data: bytes) -> Block:
    block = decode(data, trusted=True)
    assert block is not None, "a block that was just made can be read"
    return block


@dataclass(frozen=True, slots=True)
class _Loading:
    index: Index
    snapshot: Snapshot
    files: Sequence[SourceFile]
    taker: _Taker
    store: Records

    def run(self, cancel: threading.Event) -> int:
        """Give the taker every file; how many were freshly cut."""
        groups = groups_of(self.files, record_keys(self.files, self.index.encoder))
        unfinished = []
        for group in self.taker.take(groups, self.store):
            self._find_parts(group)
            if group.missing:
                unfinished.append(group)
            else:
                self._finish(group)
        # The largest first: what runs last, while other workers have nothing left, is small.
        unfinished.sort(key=lambda group: (-self._size(group), group.first))
        self._build(unfinished, cancel)
        return sum(len(group.missing) for group in unfinished)

    def _find_parts(self, group: Group) -> None:
        """Look for its files in the blocks that they were last seen in."""
        dimension = 0 if self.index.encoder is None else self.index.encoder.dimension
        places = {k: Place.read(data) for k, data in self.store.get(group.keys).items()}
        blocks = self.store.get(tuple(dict.fromkeys(p.block for p in places.values() if p)))
        for name, data in blocks.items():
            block = decode(data)
            if block is not None and block.dimension == dimension:
                inside = {p.number: k for k, p in places.items() if p and p.block == name}
                group.add(block, [inside.get(at) for at in range(block.file_sizes.size)])
        numbers = enumerate(group.keys, start=group.first)
        group.missing.extend(number for number, key in numbers if key not in group.places)

    def _size(self, group: Group) -> int:
        return sum(self.files[number].size for number in group.missing)

    def _build(self, groups: Sequence[Group], cancel: threading.Event) -> None:
        """Cut the missing files, keeping what is done as it goes."""
        work = [(group, some) for group in groups for some in self._portions(group)]
        total, done = sum(len(some) for _, some in work), 0
        with closing(self._built([some for _, some in work], cancel)) as results:
            for built, (group, some) in zip(results, work, strict=True):
                self._deliver(group, some, built.block)
                done += len(some)
                self.index.reporter(StageProgress(STAGE, done, total))

    def _portions(self, group: Group) -> list[list[int]]:
        """Its missing files in runs that are not too much at a time."""
        portions: list[list[int]] = []
        room = 0
        for number in group.missing:
            if room <= 0:
                portions.append([])
                room = _JOB_BYTES
            portions[-1].append(number)
            room -= self.files[number].size
        group.waiting = len(portions)
        return portions

    def _deliver(self, group: Group, numbers: Sequence[int], data: bytes) -> None:
        keys = tuple(group.keys[number - group.first] for number in numbers)
        group.waiting -= 1
        if keys == group.keys:
            self._keep(group, data)
            return
        group.add(_own(data), keys)
        if not group.waiting:
            self._finish(group)

    def _finish(self, group: Group) -> None:
        """Put a group together that has become complete, and let its parts go."""
        self._keep(group, encode(group.block()))
        group.parts.clear()

    def _keep(self, group: Group, data: bytes) -> None:
        self.taker.add(group.first, data)
        places = ((key, Place(group.key, at).written()) for at, key in enumerate(group.keys))
        self.store.put([(group.key, data), *places])

    def _built(
        self, portions: Sequence[Sequence[int]], cancel: threading.Event
    ) -> Generator[Built, None, None]:
        jobs = self._jobs(portions)
        workers, encoder = self.index.workers, self.index.encoder
        count = (os.cpu_count() or 1) if workers is None else workers
        size = sum(self.files[number].size for some in portions for number in some)
        if count > 1 and size >= POOL_MIN_BYTES:
            return build_in_workers(jobs, cancel, count, encoder)
        return build_here(jobs, cancel, encoder)

    def _jobs(self, portions: Sequence[Sequence[int]]) -> Iterator[Job]:
        for number, some in enumerate(portions):
            files = [self.files[at] for at in some]
            yield Job(number, [(file.language, self.snapshot.text(file.path)) for file in files])
