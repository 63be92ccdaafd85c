"""Builds a corpus from a snapshot: known contents come from the cache, new ones are cut.

Files are stored in blocks, one per group of files in path order, so a warm query reads some dozens
of blocks. The store also maps each file to its block: if some files of a group are new, the others
are taken from their old blocks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import metadata
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

import numpy as np

from agent.repository import is_generated_path, is_test_path, is_vendored_path
from agent.retrieval.index.blocks import HEAD_BYTES, Block, decode, encode, merge, select, sizes_in
from agent.retrieval.index.corpus import Corpus, CorpusBuilder
from agent.retrieval.index.grammars import GRAMMARS
from agent.retrieval.index.pool import BuildJob, BuiltBlock, build_here, build_in_workers
from agent.retrieval.index.records import FORMAT, PieceEncoder
from agent.shared.cache import DEFAULT_LIMIT, ReadThrough, Records, RecordStore
from agent.types.events import StageProgress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types import SourceFile
    from agent.types.protocols import Reporter, Snapshot

GROUP_FILES = 64
"""Mean number of files in a group. Smaller groups make changes cheaper and queries slower."""

_SMALLEST_GROUP, _LARGEST_GROUP = GROUP_FILES // 4, GROUP_FILES * 2


@dataclass(slots=True)
class Group:
    """Consecutive files from number `first` on, by the keys of their records.

    `parts` are blocks that hold some of its files; `places` gives the part and the number in it of
    each file. `missing` are the numbers of files that must be cut, `waiting` the jobs that cut
    them.
    """

    first: int
    keys: tuple[bytes, ...]
    key: bytes
    parts: list[Block] = field(default_factory=list)
    places: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    waiting: int = 0

    def add(self, block: Block, keys: Sequence[bytes | None]) -> None:
        """Add a block. `keys` are those of its files, None for files of other groups."""
        places = ((key, (len(self.parts), at)) for at, key in enumerate(keys))
        self.places.update((key, place) for key, place in places if key)
        self.parts.append(block)

    def block(self) -> Block:
        """Return the block of the whole group. Every file must be in some part."""
        firsts = list(accumulate((part.file_sizes.size for part in self.parts), initial=0))
        places = (self.places[key] for key in self.keys)
        files = np.array([firsts[part] + at for part, at in places], dtype=np.int64)
        return select(merge(self.parts), files)


@dataclass(frozen=True, slots=True)
class Place:
    """The key of the block that holds a file, and the file's number in it."""

    block: bytes
    number: int

    def written(self) -> bytes:
        """Return the place as 18 bytes."""
        return self.block + self.number.to_bytes(2, "little")

    @classmethod
    def read(cls, data: bytes) -> Place | None:
        """Parse the output of `written`; None for anything else."""
        return cls(data[:16], int.from_bytes(data[16:], "little")) if len(data) == 18 else None


def groups_of(files: Sequence[SourceFile], keys: Sequence[bytes]) -> list[Group]:
    """Split files into groups so that a new file changes only one group."""
    bounds = [0]
    for number in range(1, len(files)):
        size = number - bounds[-1]
        ends = crc32(files[number].path.encode("utf-8", "replace")) % GROUP_FILES == 0
        if size >= _LARGEST_GROUP or (ends and size >= _SMALLEST_GROUP):
            bounds.append(number)
    if files:
        bounds.append(len(files))
    return [_group(start, tuple(keys[start:end])) for start, end in pairwise(bounds)]


def _group(first: int, keys: tuple[bytes, ...]) -> Group:
    return Group(first, keys, blake2b(b"".join(keys), digest_size=16, person=b"block").digest())


def record_keys(files: Sequence[SourceFile], encoder: PieceEncoder | None = None) -> list[bytes]:
    """Return 16 bytes per file that name its record: format, parser, language, encoder, content."""
    model = "" if encoder is None else encoder.fingerprint
    prefixes = {
        language: f"{_fingerprint(language)}|{model}" for language in {f.language for f in files}
    }
    return [
        blake2b(f"{prefixes[file.language]}|{file.blob}".encode(), digest_size=16).digest()
        for file in files
    ]


def _fingerprint(language: str) -> str:
    """Return everything that a record depends on except the content."""
    grammar = GRAMMARS.get(language)
    packages = ["snowballstemmer", "pystemmer"]
    if grammar is not None:
        packages += ["tree-sitter", grammar.module.replace("_", "-")]
    versions = ",".join(_version(package) for package in packages)
    return f"{FORMAT}|{language}|{versions}"


@cache
def _version(package: str) -> str:
    """Return a package's version. Cached, because every query needs the same ones from disk."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"  # not installed, or vendored without metadata


PROSE_AND_DATA = frozenset(
    {
        "markdown", "rst", "asciidoc", "tex", "toml", "yaml", "json", "notebook", "xml", "ini",
        "csv", "gettext", "diff", "text",
    }
)  # fmt: skip
"""Languages whose files have less weight in ranking."""

_PATHS_KNOWN = 1 << 16  # cached paths: each query of a process asks for all files


def target_files(snapshot: Snapshot) -> tuple[SourceFile, ...]:
    """Return files in path order that may be targets; all if none may. They are indexed first."""
    files = all_files(snapshot)
    return tuple(file for file in files if is_target(file.path)) or files


def all_files(snapshot: Snapshot) -> tuple[SourceFile, ...]:
    """Return every usable file in path order."""
    return tuple(snapshot.files[path] for path in sorted(snapshot.files))


@lru_cache(maxsize=_PATHS_KNOWN)
def is_target(path: str) -> bool:
    """Whether a path belongs neither to a test nor to vendored or generated code."""
    return not (is_test_path(path) or is_vendored_path(path) or is_generated_path(path))


STAGE = "index"

POOL_MIN_BYTES = 3_000_000
"""Below this much source, starting workers (0.3 s each) costs more than it saves."""

_GROUPS_AT_ONCE = 64  # blocks read at a time: limits memory
_JOB_BYTES = 4_000_000  # source bytes in one job: limits the memory of a worker


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """The result of a refresh: numbers of files, of files cut anew, and of chunks."""

    files: int
    built: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Index:
    """Loads corpora. `path` is the cache file (None: none), `workers` the most processes used.

    The file is kept at about `limit` bytes at most. `shared` opens records that several machines
    share (`agent.search.stores.postgres.records`), None for none.
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
        """Load the corpus of `files`, with the postings of the `query`'s terms (sorted hashes)
        only.

        Raises Cancelled soon after `cancel` is set.
        """
        builder = CorpusBuilder(files, query)
        self._fill(snapshot, files, _WholeBlocks(builder), cancel)
        return builder.finish()

    def refresh(self, snapshot: Snapshot, cancel: threading.Event | None = None) -> IndexSummary:
        """Cut and store every file that may be ranked and is not cached. Raises Cancelled.

        It reads only the heads of known blocks; damage elsewhere is found when a block is loaded.
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
        """Give every block to `taker` and return the number of files that were cut."""
        with self._opened() as store:
            loading = _Loading(self, snapshot, files, taker, store)
            return loading.run(cancel or threading.Event())

    def _opened(self) -> RecordStore | ReadThrough:
        """Return the local records, in front of the shared ones if there are any."""
        local = RecordStore(self.path, reporter=self.reporter, limit=self.limit)
        return local if self.shared is None else ReadThrough(local, self.shared)


class _Taker(Protocol):
    """Receives blocks from the store and newly made ones."""

    def take(self, groups: Sequence[Group], store: Records) -> list[Group]:
        """Take the known blocks. Returns the groups that are missing, incomplete or damaged."""
        ...

    def add(self, first: int, data: bytes) -> None:
        """Receive the new block of the files from number `first` on."""
        ...


@dataclass(frozen=True, slots=True)
class _WholeBlocks:
    """Passes blocks on to a corpus."""

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
    """Counts pieces for a refresh, which needs no corpus."""

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
        """Give every file to the taker and return the number of files that were cut."""
        groups = groups_of(self.files, record_keys(self.files, self.index.encoder))
        unfinished = []
        for group in self.taker.take(groups, self.store):
            self._find_parts(group)
            if group.missing:
                unfinished.append(group)
            else:
                self._finish(group)
        # Largest first, so that the last jobs, which leave other workers idle, are small.
        unfinished.sort(key=lambda group: (-self._size(group), group.first))
        self._build(unfinished, cancel)
        return sum(len(group.missing) for group in unfinished)

    def _find_parts(self, group: Group) -> None:
        """Look for the group's files in the blocks that last held them."""
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
        """Cut the missing files and store each block as it is finished."""
        work = [(group, some) for group in groups for some in self._portions(group)]
        total, done = sum(len(some) for _, some in work), 0
        with closing(self._built([some for _, some in work], cancel)) as results:
            for built, (group, some) in zip(results, work, strict=True):
                self._deliver(group, some, built.block)
                done += len(some)
                self.index.reporter(StageProgress(STAGE, done, total))

    def _portions(self, group: Group) -> list[list[int]]:
        """Split the group's missing files into runs of about `_JOB_BYTES`."""
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
        """Join the parts of a complete group and free them."""
        self._keep(group, encode(group.block()))
        group.parts.clear()

    def _keep(self, group: Group, data: bytes) -> None:
        self.taker.add(group.first, data)
        places = ((key, Place(group.key, at).written()) for at, key in enumerate(group.keys))
        self.store.put([(group.key, data), *places])

    def _built(
        self, portions: Sequence[Sequence[int]], cancel: threading.Event
    ) -> Generator[BuiltBlock, None, None]:
        jobs = self._jobs(portions)
        workers, encoder = self.index.workers, self.index.encoder
        count = (os.cpu_count() or 1) if workers is None else workers
        size = sum(self.files[number].size for some in portions for number in some)
        if count > 1 and size >= POOL_MIN_BYTES:
            return build_in_workers(jobs, cancel, count, encoder)
        return build_here(jobs, cancel, encoder)

    def _jobs(self, portions: Sequence[Sequence[int]]) -> Iterator[BuildJob]:
        for number, some in enumerate(portions):
            files = [self.files[at] for at in some]
            yield BuildJob(
                number, [(file.language, self.snapshot.text(file.path)) for file in files]
            )
