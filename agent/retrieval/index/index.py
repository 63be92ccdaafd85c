"""Builds a corpus from a snapshot: known groups of files come from the cache, others are cut, many
in workers. A worker is this module: a request is a JSON array of `[language, text]`, the answer a
block.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32

import numpy as np

from agent.repository import is_generated_path, is_test_path, is_vendored_path
from agent.retrieval.index.contents import FORMAT, BlockBuilder, PieceEncoder
from agent.retrieval.index.corpus import Corpus, CorpusBuilder, decode, encode
from agent.retrieval.index.outline import GRAMMARS
from agent.shared.cache import DEFAULT_LIMIT, RecordStore
from agent.shared.workers import (
    Cancelled,
    WorkerFailed,
    WorkerPool,
    WorkerProcess,
    read_frame,
    write_frame,
)
from agent.types.events import StageProgress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types import SourceFile
    from agent.types.protocols import Reporter, Snapshot

GROUP_FILES = 32
"""Mean number of files in a group. Smaller groups make changes cheaper and queries slower."""

_SMALLEST_GROUP, _LARGEST_GROUP = GROUP_FILES // 4, GROUP_FILES * 2
_GROUP_BYTES = 400_000  # arrays for so much text fit in the processor's cache

PROSE_AND_DATA = frozenset(
    {
        "markdown", "rst", "asciidoc", "tex", "toml", "yaml", "json", "notebook", "xml", "ini",
        "csv", "gettext", "diff", "text",
    }
)  # fmt: skip
"""Languages whose files have less weight in ranking."""

_CACHED_PATHS = 1 << 16  # each query of a process asks for all files

_STAGE = "index"

_POOL_MIN_BYTES = 3_000_000  # below, starting workers (0.3 s each) costs more than it saves
_GROUPS_AT_ONCE = 128  # blocks read at a time: limits memory


def target_files(snapshot: Snapshot) -> tuple[SourceFile, ...]:
    """Return files in path order that may be targets; all if none may. They are indexed first."""
    files = all_files(snapshot)
    return tuple(file for file in files if is_target(file.path)) or files


def all_files(snapshot: Snapshot) -> tuple[SourceFile, ...]:
    """Return every usable file in path order."""
    return tuple(snapshot.files[path] for path in sorted(snapshot.files))


@lru_cache(maxsize=_CACHED_PATHS)
def is_target(path: str) -> bool:
    """Whether a path belongs neither to a test nor to vendored or generated code."""
    return not (is_test_path(path) or is_vendored_path(path) or is_generated_path(path))


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive files: number of the first, how many, their bytes, the key of their block."""

    first: int
    size: int
    text_bytes: int
    key: bytes


def groups_of(files: Sequence[SourceFile], encoder: PieceEncoder | None = None) -> list[Group]:
    """Split files into groups so that a new file changes only one."""
    model = "" if encoder is None else encoder.fingerprint
    languages = {file.language for file in files}
    prefixes = {language: f"{_fingerprint(language)}|{model}" for language in languages}
    groups: list[Group] = []
    first = text_bytes = 0
    for end, file in enumerate(files, 1):
        size = end - first
        text_bytes += file.size
        last = end == len(files) or (
            crc32(files[end].path.encode("utf-8", "replace")) % GROUP_FILES == 0
            and size >= _SMALLEST_GROUP
        )
        if last or size >= _LARGEST_GROUP or text_bytes >= _GROUP_BYTES:
            names = [f"{prefixes[some.language]}|{some.blob}" for some in files[first:end]]
            groups.append(Group(first, size, text_bytes, _key("\n".join(names))))
            first, text_bytes = end, 0
    return groups


def _key(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16, person=b"block").digest()


def _fingerprint(language: str) -> str:
    grammar = GRAMMARS.get(language)
    packages = ["snowballstemmer", "pystemmer"]
    if grammar is not None:
        packages += ["tree-sitter", grammar.module.replace("_", "-")]
    versions = ",".join(_version(package) for package in packages)
    return f"{FORMAT}|{language}|{versions}"


@cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"  # not installed, or vendored without metadata


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """The result of a refresh: numbers of files, of files cut anew, and of chunks."""

    files: int
    built: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Index:
    """Loads corpora. `path` is the cache file (None: none), `workers` the most processes used."""

    reporter: Reporter
    path: Path | None = None
    workers: int | None = None
    limit: int = DEFAULT_LIMIT
    encoder: PieceEncoder | None = None

    def load(
        self,
        snapshot: Snapshot,
        files: Sequence[SourceFile],
        query: NDArray[np.uint64],
        cancel: threading.Event | None = None,
    ) -> Corpus:
        """Load the corpus of `files`, with the postings of the sorted `query`. Raises Cancelled."""
        return self._load(snapshot, files, query, cancel)[0]

    def refresh(self, snapshot: Snapshot, cancel: threading.Event | None = None) -> IndexSummary:
        """Cut and store every file that may be ranked and is not cached. Raises Cancelled."""
        files = target_files(snapshot)
        corpus, built = self._load(snapshot, files, np.empty(0, dtype=np.uint64), cancel)
        return IndexSummary(len(files), built, len(corpus.pieces))

    def _load(
        self,
        snapshot: Snapshot,
        files: Sequence[SourceFile],
        query: NDArray[np.uint64],
        cancel: threading.Event | None,
    ) -> tuple[Corpus, int]:
        builder = CorpusBuilder(files, query)
        dimension = 0 if self.encoder is None else self.encoder.dimension
        with RecordStore(self.path, reporter=self.reporter, limit=self.limit) as store:
            missing = _add_stored(builder, store, groups_of(files, self.encoder), dimension)
            # Largest first, so that the last jobs, which leave other workers idle, are small.
            missing.sort(key=lambda group: (-group.text_bytes, group.first))
            total, done = sum(group.size for group in missing), 0
            with closing(self._built(snapshot, files, missing, cancel)) as blocks:
                for data, group in zip(blocks, missing, strict=True):
                    block = decode(data, dimension)
                    assert block is not None, "a block that was just made can be read"
                    builder.add(group.first, block)
                    store.put([(group.key, data)])
                    done += group.size
                    self.reporter(StageProgress(_STAGE, done, total))
        return builder.finish(), total

    def _built(
        self,
        snapshot: Snapshot,
        files: Sequence[SourceFile],
        groups: Sequence[Group],
        cancel: threading.Event | None,
    ) -> Generator[bytes, None, None]:
        jobs = (
            [
                (file.language, snapshot.text(file.path))
                for file in files[g.first : g.first + g.size]
            ]
            for g in groups
        )
        cancel = cancel or threading.Event()
        count = (os.cpu_count() or 1) if self.workers is None else self.workers
        if count > 1 and sum(group.text_bytes for group in groups) >= _POOL_MIN_BYTES:
            return build_in_workers(jobs, cancel, count, self.encoder)
        return build_here(jobs, cancel, self.encoder)


def _add_stored(
    builder: CorpusBuilder, store: RecordStore, groups: Sequence[Group], dimension: int
) -> list[Group]:
    missing = []
    for start in range(0, len(groups), _GROUPS_AT_ONCE):
        some = groups[start : start + _GROUPS_AT_ONCE]
        stored = store.get([group.key for group in some])
        for group in some:
            block = decode(stored.get(group.key, b""), dimension)
            if block is None or block["file_sizes"].size != group.size:
                missing.append(group)
            else:
                builder.add(group.first, block)
    return missing


_JOB_SECONDS = 120.0  # a job that takes several hundred times longer than usual hangs
_POLL_SECONDS = 0.01  # delay until a set `cancel` is noticed
_AHEAD = 3  # jobs that may wait per worker: limits memory, keeps workers busy

Job = Sequence[tuple[str, str]]
"""The files of one block, each a language and a text."""


def build_here(
    jobs: Iterable[Job], cancel: threading.Event, encoder: PieceEncoder | None = None
) -> Generator[bytes, None, None]:
    """Build encoded blocks in this process, one job after another. Raises Cancelled."""
    builder = BlockBuilder(encoder)
    for job in jobs:
        if cancel.is_set():
            raise Cancelled
        yield encode(builder.build(job))


def build_in_workers(
    jobs: Iterable[Job], cancel: threading.Event, count: int, encoder: PieceEncoder | None = None
) -> Generator[bytes, None, None]:
    """Build in `count` processes and yield results in the order of `jobs`. Raises Cancelled."""
    workers = _start(count, encoder)
    if not workers:
        yield from build_here(jobs, cancel, encoder)
        return
    waiting: deque[tuple[Job, Future[bytes]]] = deque()
    with WorkerPool(workers, "index") as pool:
        for job in jobs:
            ask = partial(
                WorkerProcess.ask, frames=[json.dumps(job).encode()], seconds=_JOB_SECONDS
            )
            waiting.append((job, pool.submit(ask)))
            if len(waiting) >= len(workers) * _AHEAD:
                yield _result(*waiting.popleft(), cancel, encoder)
        while waiting:
            yield _result(*waiting.popleft(), cancel, encoder)


def _result(
    job: Job, future: Future[bytes], cancel: threading.Event, encoder: PieceEncoder | None
) -> bytes:
    while not future.done() and not cancel.wait(_POLL_SECONDS):
        pass
    if cancel.is_set():
        raise Cancelled
    try:
        return future.result()
    except WorkerFailed:
        return encode(BlockBuilder(encoder).build(job))


def _start(count: int, encoder: PieceEncoder | None) -> list[WorkerProcess]:
    model = () if encoder is None else ("--static", str(encoder.path.resolve()))
    names = ("PATH", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    workers: list[WorkerProcess] = []
    for _ in range(count):
        try:
            worker = WorkerProcess(
                "agent.retrieval.index.index",
                *model,
                environment=environment,
                folder="/",
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            break  # process limit, no memory, no /dev/null: fewer workers, or none
        workers.append(worker)
    return workers


def serve(source: BinaryIO, sink: BinaryIO, encoder: PieceEncoder | None = None) -> None:
    """Answer requests until the source ends."""
    builder = BlockBuilder(encoder)
    while True:
        try:
            request = json.loads(read_frame(source))
        except EOFError:
            return
        write_frame(sink, encode(builder.build(request)))
        sink.flush()


def main() -> None:
    """Serve on the standard streams."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--static", type=Path)
    path = parser.parse_args().static
    encoder: PieceEncoder | None = None
    if path is not None:
        # The layer above: a worker loads it by name, and only if it needs it.
        encoder = importlib.import_module("agent.retrieval.embedding.static").read_static(path)
        if encoder is None:
            raise ValueError(f"{path}: not a static encoder")
    serve(sys.stdin.buffer, sys.stdout.buffer, encoder)


if __name__ == "__main__":
    main()
