"""From a snapshot to a corpus: cached records where the content is known, fresh ones where not."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.events import StageProgress
from agent.retrieval.candidates import target_files
from agent.retrieval.corpus import Corpus, CorpusBuilder
from agent.retrieval.grammars import GRAMMARS
from agent.retrieval.pool import Built, Job, build_here, build_in_workers
from agent.retrieval.records import FORMAT, decode
from agent.retrieval.store import DEFAULT_LIMIT, RecordStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter, Snapshot
    from agent.types import SourceFile

STAGE = "index"

POOL_MIN_BYTES = 3_000_000
"""Below this much source, starting workers (0.3 s each) costs more than it saves."""

_WRITE_EVERY = 200  # records a transaction: what a killed run loses at most
_PROGRESS_EVERY = 25  # files


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What a refresh found: files looked at, of these freshly cut, and chunks in all."""

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
        return self._load(snapshot, files, query, cancel)[0]

    def refresh(self, snapshot: Snapshot, cancel: threading.Event | None = None) -> IndexSummary:
        """Bring the cache up to date with what may be ranked. Raises `pool.Cancelled`."""
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
        with RecordStore(self.path, reporter=self.reporter, limit=self.limit) as store:
            loading = _Loading(self, snapshot, files, builder, store, record_keys(files))
            missing = loading.take_known()
            loading.build(missing, cancel or threading.Event())
        return builder.finish(), len(missing)


@dataclass(frozen=True, slots=True)
class _Loading:
    index: Index
    snapshot: Snapshot
    files: Sequence[SourceFile]
    builder: CorpusBuilder
    store: RecordStore
    keys: Sequence[bytes]

    def take_known(self) -> list[int]:
        """Numbers of the files that the store does not know, or knows damaged."""
        known = self.store.get(list(dict.fromkeys(self.keys)))
        missing: list[int] = []
        for number, key in enumerate(self.keys):
            record = decode(known[key]) if key in known else None
            if record is None:
                missing.append(number)
            else:
                self.builder.add(number, record)
        return missing

    def build(self, missing: Sequence[int], cancel: threading.Event) -> None:
        """Cut the missing files, keeping what is done as it goes."""
        fresh: list[tuple[bytes, bytes]] = []
        with closing(self._built(missing, cancel)) as results:
            for done, built in enumerate(results, start=1):
                self._take(built)
                fresh.append((self.keys[built.number], built.record))
                if len(fresh) >= _WRITE_EVERY:
                    self.store.put(fresh)
                    fresh = []
                if done % _PROGRESS_EVERY == 0 or done == len(missing):
                    self.index.reporter(StageProgress(STAGE, done, len(missing)))
        if fresh:
            self.store.put(fresh)

    def _take(self, built: Built) -> None:
        record = decode(built.record)
        assert record is not None, "a record that was just made can be read"
        self.builder.add(built.number, record)

    def _built(
        self, missing: Sequence[int], cancel: threading.Event
    ) -> Generator[Built, None, None]:
        jobs = _jobs(self.snapshot, self.files, missing)
        workers = self.index.workers
        count = (os.cpu_count() or 1) if workers is None else workers
        if count > 1 and sum(self.files[number].size for number in missing) >= POOL_MIN_BYTES:
            return build_in_workers(jobs, cancel, count)
        return build_here(jobs, cancel)


def _jobs(snapshot: Snapshot, files: Sequence[SourceFile], numbers: Iterable[int]) -> Iterator[Job]:
    for number in numbers:
        file = files[number]
        yield Job(number, file.language, snapshot.text(file.path))


def record_keys(files: Sequence[SourceFile]) -> list[bytes]:
    """For each file 16 bytes that name its record: format, parser, language and content."""
    prefixes = {language: _fingerprint(language) for language in {f.language for f in files}}
    return [
        blake2b(f"{prefixes[file.language]}|{file.blob}".encode(), digest_size=16).digest()
        for file in files
    ]


def _fingerprint(language: str) -> str:
    """What besides the content decides about a record."""
    grammar = GRAMMARS.get(language)
    packages = ["snowballstemmer"]
    if grammar is not None:
        packages += ["tree-sitter", grammar.module.replace("_", "-")]
    versions = ",".join(_version(package) for package in packages)
    return f"{FORMAT}|{language}|{versions}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"  # vendored without metadata
