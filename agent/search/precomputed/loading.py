"""Loads a folder of vector files into an index. Unusable files are reported and skipped.

A packed file caches a loaded folder, so the next start reads one file instead of many. It has one
line of JSON (format, fingerprint, sizes, checksum), the vectors as little-endian float32, and JSON
of ids, metadata and skipped files. Its data is only used if length and checksum match, and is never
executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import SemanticIndexError
from agent.events import Notice, StageProgress
from agent.files import replace_file
from agent.search.precomputed.index import SkippedVector, VectorIndex, metas_by_row
from agent.search.precomputed.vector_files import (
    MAX_DIMENSION,
    META,
    Folder,
    Invalid,
    ListedFile,
    VectorMeta,
    in_one_line,
    listed,
    open_folder,
    parse_meta,
    parse_vector,
    thawed,
    why_no_id,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter

FORMAT = 1
_MAX_HEADER = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """The content of a folder: ids ascending, vectors float32 (n, d), and metadata by id."""

    ids: tuple[str, ...]
    vectors: NDArray[np.float32]
    metas: Mapping[str, VectorMeta]
    skipped: tuple[SkippedVector, ...]


def fingerprint(files: Sequence[ListedFile], dimension: int | None) -> str:
    """Return the SHA-256 (hex) of names, sizes and modification times, to detect changes."""
    digest = hashlib.sha256(f"{FORMAT} {dimension}\n".encode())
    for file in files:
        line = f"{file.size} {file.changed} {int(file.linked)} {file.name}\0"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int
    mark: str
    count: int
    dimension: int
    rest: int  # bytes of the JSON at the end
    crc: int  # checksum of everything after the first line


class _Rest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    ids: list[str]
    metas: dict[str, Any]
    skipped: list[tuple[str, str]]


def write_packed(path: Path, mark: str, packed: Packed) -> None:
    """Write the packed file. Raises OSError."""
    metas = {name: _as_file(meta) for name, meta in packed.metas.items()}
    skipped = [(one.name, one.reason) for one in packed.skipped]
    rest = json.dumps({"ids": packed.ids, "metas": metas, "skipped": skipped}).encode()
    numbers = np.ascontiguousarray(packed.vectors, dtype="<f4").tobytes()
    header = _Header(
        format=FORMAT,
        mark=mark,
        count=len(packed.ids),
        dimension=packed.vectors.shape[1],
        rest=len(rest),
        crc=zlib.crc32(rest, zlib.crc32(numbers)),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (header.model_dump_json().encode() + b"\n", numbers, rest))


def read_packed(path: Path, mark: str) -> Packed | None:
    """Read the packed file; None if it is missing, damaged, or has another fingerprint."""
    try:
        with path.open("rb") as file:
            header = _Header.model_validate_json(file.readline(_MAX_HEADER))
            numbers = 4 * header.count * header.dimension
            left = os.fstat(file.fileno()).st_size - file.tell()
            if (header.format, header.mark) != (FORMAT, mark) or left != numbers + header.rest:
                return None
            data = file.read()
    except (OSError, ValidationError):
        return None
    if zlib.crc32(data) != header.crc:
        return None
    return _unpacked(data, header, numbers)


def _unpacked(data: bytes, header: _Header, numbers: int) -> Packed | None:
    vectors = np.frombuffer(data, dtype="<f4", count=numbers // 4)
    try:
        rest = _Rest.model_validate_json(json.dumps(json.loads(data[numbers:])))
    except (ValueError, RecursionError):
        return None
    metas: dict[str, VectorMeta] = {}
    for name, value in rest.metas.items():
        meta = parse_meta(json.dumps(value).encode())
        if isinstance(meta, Invalid):
            return None
        metas[name] = meta
    if len(rest.ids) != header.count or rest.ids != sorted(set(rest.ids)):
        return None
    return Packed(
        tuple(rest.ids),
        vectors.astype(np.float32, copy=False).reshape(header.count, header.dimension),
        metas,
        tuple(SkippedVector(name, reason) for name, reason in rest.skipped),
    )


def _as_file(meta: VectorMeta) -> dict[str, Any]:
    """Return the metadata in the format of a metadata file."""
    known = {"tags": list(meta.tags), "text": meta.text, "text_file": meta.text_file}
    return {**thawed(meta.metadata), **{k: v for k, v in known.items() if v is not None}}


LOADING_STAGE = "vectors"
_PROGRESS_EVERY = 2_000  # files

MANY = 100_000
"""A larger folder is slow to open and to search; the store has an index of int8 vectors for it."""

MAX_NAMED = 3
"""Files that the warning names. `VectorIndex.skipped` lists all of them."""


def load_vectors(
    folder: Path,
    reporter: Reporter,
    *,
    dimension: int | None = None,
    cache: Path | None = None,
    strict: bool = False,
) -> VectorIndex:
    """Load a folder of vectors; `vector_files` describes its files.

    `dimension`: the expected dimension; None means the most frequent one.
    `cache`: path of a packed file, which is used while names, sizes and modification times match.

    A folder that is missing or has no usable vector gives an empty index and a warning; if
    `strict`, it raises SemanticIndexError. So does a folder that cannot be read, in any case.
    """
    if dimension is not None and not 1 <= dimension <= MAX_DIMENSION:
        raise SemanticIndexError(f"dimension {dimension}: give one from 1 to {MAX_DIMENSION:,}")
    if not strict and not folder.exists():
        return _empty(folder, f"{in_one_line(str(folder))}: no such folder", reporter)
    with open_folder(folder) as opened:
        files = [file for file in listed(opened) if cache is None or not _is(cache, opened, file)]
        mark = fingerprint(files, dimension)
        packed = read_packed(cache, mark) if cache is not None else None
        if packed is None:
            packed = _Loading(opened, reporter, dimension).run(files)
            if cache is not None:
                _keep(cache, mark, packed, reporter)
        root = opened.root
    _warn(packed.skipped, folder, reporter)
    if not packed.ids:
        what = (
            f"{in_one_line(str(folder))}: no usable vector in {len(files):,}"
            f" {'file' if len(files) == 1 else 'files'}; each is a JSON array of numbers"
        )
        if strict:
            raise SemanticIndexError(what)
        return _empty(folder, what, reporter, packed.skipped)
    if len(packed.ids) > MANY:
        reporter(Notice(_many(folder, len(packed.ids))))
    metas = metas_by_row(packed.ids, packed.metas)
    return VectorIndex(root, packed.ids, packed.vectors, metas, packed.skipped)


def _many(folder: Path, count: int) -> str:
    return (
        f"{in_one_line(str(folder))}: {count:,} vectors are compared one by one; `agent index "
        "--precomputed FOLDER` puts them into the store, which has an index (extra `ann`)"
    )


def _empty(
    folder: Path, what: str, reporter: Reporter, skipped: tuple[SkippedVector, ...] = ()
) -> VectorIndex:
    reporter(Notice(f"{what}; the index is empty", "warning"))
    return VectorIndex(folder, (), np.empty((0, 0), dtype=np.float32), skipped=skipped)


def _is(cache: Path, folder: Folder, file: ListedFile) -> bool:
    """Whether the cache lies in the folder of vectors and `file` is the cache."""
    return cache.name == file.name and cache.parent.resolve() == folder.root


def _keep(cache: Path, mark: str, packed: Packed, reporter: Reporter) -> None:
    try:
        write_packed(cache, mark, packed)
    except OSError as error:  # a full disk only makes the next start slower
        reporter(Notice(f"{cache}: not kept ({error.strerror})", "warning"))


def _warn(skipped: Sequence[SkippedVector], folder: Path, reporter: Reporter) -> None:
    """Report all skipped files in one line, because a folder may be searched often."""
    if not skipped:
        return
    named = [f"{in_one_line(one.name)}: {in_one_line(one.reason)}" for one in skipped[:MAX_NAMED]]
    more = len(skipped) - len(named)
    if more:
        named.append(f"{more:,} more (--json has all)")
    files = f"{len(skipped):,} {'file' if len(skipped) == 1 else 'files'}"
    place = in_one_line(str(folder))
    reporter(Notice(f"{place}: {files} skipped: {'; '.join(named)}", "warning"))


@dataclass(slots=True)
class _Loading:
    """One pass over all files of a folder."""

    folder: Folder
    reporter: Reporter
    dimension: int | None
    skipped: dict[str, str] = field(default_factory=dict)

    def run(self, files: Sequence[ListedFile]) -> Packed:
        metas = self._metas([file for file in files if file.name.endswith(META)])
        texts = frozenset(normpath(meta.text_file or "") for meta in metas.values())
        others = (f for f in files if not f.name.endswith(META) and f.name not in texts)
        vectors = self._of_one_dimension(self._vectors(self._distinct(others)))
        for name in sorted(metas.keys() - vectors.keys()):
            self.skipped.setdefault(f"{name}{META}", "the vector that it belongs to is not used")
        ids = tuple(sorted(vectors))
        skipped = tuple(SkippedVector(_shown(n), why) for n, why in sorted(self.skipped.items()))
        kept = {name: metas[name] for name in ids if name in metas}
        return Packed(ids, _stacked([vectors[name] for name in ids]), kept, skipped)

    def _metas(self, files: Sequence[ListedFile]) -> dict[str, VectorMeta]:
        found: dict[str, VectorMeta] = {}
        for file in files:
            data = self.folder.read(file)
            meta = data if isinstance(data, Invalid) else parse_meta(data)
            if isinstance(meta, Invalid):
                self.skipped[file.name] = meta.reason
            else:
                found[file.name.removesuffix(META)] = meta
        return found

    def _distinct(self, files: Iterable[ListedFile]) -> list[ListedFile]:
        """Return one file for each id; `<id>.json` has priority over `<id>`."""
        found: dict[str, ListedFile] = {}
        for file in files:
            other = found.setdefault(file.identifier, file)
            if other is not file:  # the order by name lists `<id>` first
                self.skipped[other.name] = f"the id is that of {file.name}, which is used"
                found[file.identifier] = file
        return list(found.values())

    def _vectors(self, files: Sequence[ListedFile]) -> dict[str, _Vector]:
        found: dict[str, _Vector] = {}
        for done, file in enumerate(files, start=1):
            data = self.folder.read(file)
            vector = data if isinstance(data, Invalid) else parse_vector(data)
            if isinstance(vector, Invalid):
                self.skipped[file.name] = vector.reason
            elif reason := why_no_id(file.identifier):
                self.skipped[file.name] = f"its name is no id: {reason}"
            else:
                found[file.identifier] = _Vector(file.name, vector)
            if done % _PROGRESS_EVERY == 0 or done == len(files):
                self.reporter(StageProgress(LOADING_STAGE, done, len(files)))
        return found

    def _of_one_dimension(self, found: Mapping[str, _Vector]) -> dict[str, NDArray[np.float32]]:
        """Return the vectors of the declared or most frequent dimension; the smaller on a tie."""
        sizes = Counter(vector.numbers.size for vector in found.values())
        most = min(sizes, key=lambda size: (-sizes[size], size), default=0)
        wanted = self.dimension or most
        for vector in found.values():
            if vector.numbers.size != wanted:
                ways = "are declared" if self.dimension else "are of most"
                if not self.dimension and sizes[vector.numbers.size] == sizes[wanted]:
                    ways = "are of as many files, and fewer"
                self.skipped[vector.file] = f"{vector.numbers.size} dimensions, {wanted} {ways}"
        return {n: v.numbers for n, v in found.items() if v.numbers.size == wanted}


@dataclass(frozen=True, slots=True, eq=False)
class _Vector:
    """The numbers of one file."""

    file: str
    numbers: NDArray[np.float32]


def _shown(name: str) -> str:
    """Return a file name as text, also if its bytes are not valid UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()


def _stacked(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.stack(vectors) if vectors else np.empty((0, 0), dtype=np.float32)
