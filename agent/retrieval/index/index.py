"""Builds a corpus from a snapshot: known groups of files come from the cache, others are cut."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from agent.repository import is_generated_path, is_test_path, is_vendored_path
from agent.retrieval.index.contents import FORMAT, PieceEncoder
from agent.retrieval.index.corpus import Corpus, CorpusBuilder, decode
from agent.retrieval.index.cutting import cut
from agent.retrieval.index.outline import GRAMMARS
from agent.shared.cache import DEFAULT_LIMIT, RecordStore
from agent.shared.workers import Cancelled
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
    """Consecutive files: number of the first, how many, the key of their block."""

    first: int
    size: int
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
            digest = blake2b("\n".join(names).encode(), digest_size=16, person=b"block")
            groups.append(Group(first, size, digest.digest()))
            first, text_bytes = end, 0
    return groups


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
    """Loads corpora. `path` is the cache file (None: none)."""

    reporter: Reporter
    path: Path | None = None
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
            total, done = sum(group.size for group in missing), 0
            texts = (
                [(f.language, snapshot.text(f.path)) for f in files[g.first : g.first + g.size]]
                for g in missing
            )
            with closing(cut(texts, len(missing), self.encoder)) as blocks:
                for group, data in zip(missing, blocks, strict=True):
                    if cancel is not None and cancel.is_set():
                        raise Cancelled
                    block = decode(data, dimension)
                    assert block is not None, "a block that was just made can be read"
                    builder.add(group.first, block)
                    store.put([(group.key, data)])
                    done += group.size
                    self.reporter(StageProgress(_STAGE, done, total))
        return builder.finish(), total


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
