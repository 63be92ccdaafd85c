"""From a snapshot to a corpus: cached where the content is known, freshly cut where not.

Two caches: records of single files, and blocks of groups of files in path order. A warm query
reads some dozens of blocks instead of thousands of records; a changed file costs its record and
the merging of its group.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

import numpy as np

from agent.events import StageProgress
from agent.retrieval.blocks import HEAD_BYTES, Block, decode, encode, merge, sizes_in
from agent.retrieval.candidates import target_files
from agent.retrieval.corpus import Corpus, CorpusBuilder
from agent.retrieval.grammars import GRAMMARS
from agent.retrieval.pool import Built, Job, build_here, build_in_workers
from agent.retrieval.records import FORMAT, PieceEncoder
from agent.retrieval.store import DEFAULT_LIMIT, ReadThrough, Records, RecordStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter, Snapshot
    from agent.types import SourceFile

STAGE = "index"

POOL_MIN_BYTES = 3_000_000
"""Below this much source, starting workers (0.3 s each) costs more than it saves."""

GROUP_FILES = 64
"""Files of a group, on average. Smaller groups make a change cheaper and a query dearer."""

_SMALLEST_GROUP, _LARGEST_GROUP = GROUP_FILES // 4, GROUP_FILES * 2
_GROUPS_AT_ONCE = 64  # blocks read at a time: bounds memory
_WRITE_EVERY = 200  # records a transaction: what a killed run loses at most
_WRITE_BLOCKS_EVERY = 16
_PROGRESS_EVERY = 25  # files


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What a refresh found: files looked at, of these freshly cut, and chunks in all."""

    files: int
    built: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Index:
    """Loads corpora. `path` is the cache file (None: none), `workers` the most processes used.

    Blocks are kept in a second file beside `path`, within the same `limit` of bytes each. `shared`
    opens records that several machines have in common (`agent.stores.records`), None for none.
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
        blocks = None if self.path is None else self.path.with_name(f"{self.path.stem}-blocks.db")
        with self.opened(blocks) as store:
            loading = _Loading(self, snapshot, files, taker, store)
            return loading.run(cancel or threading.Event())

    def opened(self, path: Path | None) -> RecordStore | ReadThrough:
        """The records in a file, with the shared ones behind them."""
        local = RecordStore(path, reporter=self.reporter, limit=self.limit)
        return local if self.shared is None else ReadThrough(local, self.shared)


@dataclass(slots=True)
class _Group:
    """Files number `first` and following, by the keys of their records."""

    first: int
    keys: tuple[bytes, ...]
    key: bytes
    records: dict[bytes, Block] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.records) == len(set(self.keys))

    def block(self) -> Block:
        return merge([self.records[key] for key in self.keys])


class _Taker(Protocol):
    """What becomes of blocks: those that the store has, and those that are made."""

    def take(self, groups: Sequence[_Group], store: Records) -> list[_Group]:
        """Groups that are not known as a whole, or are known damaged."""
        ...

    def add(self, first: int, block: Block) -> None:
        """Take the block of the files from number `first` on."""
        ...


@dataclass(frozen=True, slots=True)
class _WholeBlocks:
    """Hands blocks on to a corpus."""

    builder: CorpusBuilder

    def take(self, groups: Sequence[_Group], store: Records) -> list[_Group]:
        unknown = []
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            some = groups[start : start + _GROUPS_AT_ONCE]
            known = store.get([group.key for group in some])
            for group in some:
                block = decode(known[group.key]) if group.key in known else None
                if block is None or block.file_sizes.size != len(group.keys):
                    unknown.append(group)
                else:
                    self.add(group.first, block)
        return unknown

    def add(self, first: int, block: Block) -> None:
        self.builder.add(first, block)


@dataclass(slots=True)
class _PieceCounter:
    """Counts pieces, for those who need no corpus."""

    pieces: int = 0

    def take(self, groups: Sequence[_Group], store: Records) -> list[_Group]:
        heads = store.heads([group.key for group in groups], HEAD_BYTES)
        unknown = []
        for group in groups:
            found = sizes_in(*heads[group.key]) if group.key in heads else None
            if found is None or found.files != len(group.keys):
                unknown.append(group)
            else:
                self.pieces += found.pieces
        return unknown

    def add(self, first: int, block: Block) -> None:
        self.pieces += block.starts.size


@dataclass(frozen=True, slots=True)
class _Loading:
    index: Index
    snapshot: Snapshot
    files: Sequence[SourceFile]
    taker: _Taker
    blocks: Records
    fresh_blocks: list[tuple[bytes, bytes]] = field(default_factory=list)

    def run(self, cancel: threading.Event) -> int:
        """Give the taker every file; how many were freshly cut."""
        groups = groups_of(self.files, record_keys(self.files, self.index.encoder))
        unknown = self.taker.take(groups, self.blocks)
        if not unknown:
            return 0
        with self.index.opened(self.index.path) as records:
            waiting = self._take_records(unknown, records)
            self._build(waiting, records, cancel)
        self._write_blocks()
        return len(waiting)

    def _take_records(
        self, groups: Sequence[_Group], store: Records
    ) -> dict[bytes, list[tuple[_Group, int]]]:
        """Keys of records to build, in order of files, with who waits for each and its file."""
        waiting: dict[bytes, list[tuple[_Group, int]]] = {}
        for group in groups:
            known = store.get(list(dict.fromkeys(group.keys)))
            for number, key in enumerate(group.keys, start=group.first):
                record = decode(known[key]) if key in known else None
                if record is None or record.file_sizes.size != 1:
                    waiting.setdefault(key, []).append((group, number))
                else:
                    group.records[key] = record
            self._finish(group)
        return waiting

    def _build(
        self,
        waiting: dict[bytes, list[tuple[_Group, int]]],
        store: Records,
        cancel: threading.Event,
    ) -> None:
        """Cut the missing files, keeping what is done as it goes."""
        fresh: list[tuple[bytes, bytes]] = []
        keys = list(waiting)
        numbers = [waiting[key][0][1] for key in keys]
        with closing(self._built(numbers, cancel)) as results:
            for done, (key, built) in enumerate(zip(keys, results, strict=True), start=1):
                self._deliver(key, built, waiting[key])
                fresh.append((key, built.record))
                if len(fresh) >= _WRITE_EVERY:
                    store.put(fresh)
                    fresh = []
                if done % _PROGRESS_EVERY == 0 or done == len(keys):
                    self.index.reporter(StageProgress(STAGE, done, len(keys)))
        if fresh:
            store.put(fresh)

    def _deliver(self, key: bytes, built: Built, takers: Iterable[tuple[_Group, int]]) -> None:
        record = decode(built.record, trusted=True)
        assert record is not None, "a record that was just made can be read"
        for group, _ in takers:
            group.records[key] = record
            self._finish(group)

    def _finish(self, group: _Group) -> None:
        """Merge a group that has become complete, and let its records go."""
        if not group.complete:
            return
        block = group.block()
        group.records = {}
        self.taker.add(group.first, block)
        self.fresh_blocks.append((group.key, encode(block, deflate=False)))
        if len(self.fresh_blocks) >= _WRITE_BLOCKS_EVERY:
            self._write_blocks()

    def _write_blocks(self) -> None:
        if self.fresh_blocks:
            self.blocks.put(self.fresh_blocks)
            self.fresh_blocks.clear()

    def _built(
        self, numbers: Sequence[int], cancel: threading.Event
    ) -> Generator[Built, None, None]:
        jobs = _jobs(self.snapshot, self.files, numbers)
        workers, encoder = self.index.workers, self.index.encoder
        count = (os.cpu_count() or 1) if workers is None else workers
        if count > 1 and sum(self.files[number].size for number in numbers) >= POOL_MIN_BYTES:
            return build_in_workers(jobs, cancel, count, encoder)
        return build_here(jobs, cancel, encoder)


def _jobs(snapshot: Snapshot, files: Sequence[SourceFile], numbers: Iterable[int]) -> Iterator[Job]:
    for number in numbers:
        file = files[number]
        yield Job(number, file.language, snapshot.text(file.path))


def groups_of(files: Sequence[SourceFile], keys: Sequence[bytes]) -> list[_Group]:
    """Runs of files whose ends depend on few paths, so that a new file changes one group only."""
    bounds = [0]
    for number in range(1, len(files)):
        size = number - bounds[-1]
        ends = crc32(files[number].path.encode("utf-8", "replace")) % GROUP_FILES == 0
        if size >= _LARGEST_GROUP or (ends and size >= _SMALLEST_GROUP):
            bounds.append(number)
    if files:
        bounds.append(len(files))
    return [_group(start, tuple(keys[start:end])) for start, end in pairwise(bounds)]


def _group(first: int, keys: tuple[bytes, ...]) -> _Group:
    return _Group(first, keys, blake2b(b"".join(keys), digest_size=16, person=b"block").digest())


def record_keys(files: Sequence[SourceFile], encoder: PieceEncoder | None = None) -> list[bytes]:
    """For each file 16 bytes that name its record: format, parser, language, encoder, content."""
    model = "" if encoder is None else encoder.fingerprint
    prefixes = {
        language: f"{_fingerprint(language)}|{model}" for language in {f.language for f in files}
    }
    return [
        blake2b(f"{prefixes[file.language]}|{file.blob}".encode(), digest_size=16).digest()
        for file in files
    ]


def _fingerprint(language: str) -> str:
    """What besides the content decides about a record."""
    grammar = GRAMMARS.get(language)
    packages = ["snowballstemmer", "pystemmer"]
    if grammar is not None:
        packages += ["tree-sitter", grammar.module.replace("_", "-")]
    versions = ",".join(_version(package) for package in packages)
    return f"{FORMAT}|{language}|{versions}"


@cache
def _version(package: str) -> str:
    """Remembered: it is looked up in files, for every query and several languages the same."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"  # not installed, or vendored without metadata
