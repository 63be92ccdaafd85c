"""Loads a folder of vector files into an index. Unusable files are reported and skipped.

A packed file caches a loaded folder, so the next start reads one file instead of many. It has one
line of JSON (format, fingerprint, sizes, checksum), the vectors as little-endian float32, and JSON
of ids, metadata and skipped files. Its data is only used if length and checksum match, and is never
executed. Many vectors are mapped into memory, because a search reads few of them.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from agent.errors import SemanticIndexError
from agent.search.precomputed.compact import compact
from agent.search.precomputed.index import SkippedVector, VectorIndex, lengths_of, metas_by_row
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
from agent.search.stores.sqlite import open_matrix_index
from agent.shared.files import replace_file
from agent.types.events import Notice, StageProgress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter

FORMAT = 2
_MAX_HEADER = 1_000
_ALIGNED = 64  # bytes; mapped numbers must begin at a multiple of their size
_PIECE = 1 << 22  # bytes checked at a time
_ROWS_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """The content of a folder: ids ascending, vectors float32 (n, d), and metadata by id.

    `mapped` is the file that holds the vectors; None if they are in memory.
    """

    ids: tuple[str, ...]
    vectors: NDArray[np.float32]
    metas: Mapping[str, VectorMeta]
    skipped: tuple[SkippedVector, ...]
    mapped: mmap.mmap | None = None

    def pieces(self) -> Iterator[NDArray[np.float32]]:
        """Yield all vectors, some thousand at a time."""
        for first in range(0, len(self.ids), _ROWS_AT_ONCE):
            yield self.vectors[first : first + _ROWS_AT_ONCE]
            self.release()

    def release(self) -> None:
        """Let the system take back the memory of mapped vectors that were read."""
        if self.mapped is not None:
            self.mapped.madvise(mmap.MADV_DONTNEED)


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
    count: int = Field(ge=0)
    dimension: int = Field(ge=0)
    rest: int = Field(ge=0)  # bytes of the JSON at the end
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
    numbers = np.ascontiguousarray(packed.vectors, dtype="<f4").reshape(-1).view(np.uint8).data
    header = _Header(
        format=FORMAT,
        mark=mark,
        count=len(packed.ids),
        dimension=packed.vectors.shape[1],
        rest=len(rest),
        crc=zlib.crc32(rest, zlib.crc32(numbers)),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    line = header.model_dump_json().encode()
    line += b" " * ((-len(line) - 1) % _ALIGNED) + b"\n"
    replace_file(path, (line, numbers, rest))


def read_packed(path: Path, mark: str, many: int) -> Packed | None:
    """Read the packed file, or map it if it has more than `many` vectors.

    None if it is missing, damaged, or has another fingerprint.
    """
    try:
        with path.open("rb") as file:
            header = _Header.model_validate_json(file.readline(_MAX_HEADER))
            if (header.format, header.mark) != (FORMAT, mark):
                return None
            first, crc = file.tell(), 0
            while piece := file.read(_PIECE):  # so that little stays in memory
                crc = zlib.crc32(piece, crc)
            data: bytes | mmap.mmap
            if header.count > many:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            else:
                file.seek(0)
                data = file.read()
    except (OSError, ValueError):  # ValidationError is a ValueError
        return None
    size = 4 * header.count * header.dimension
    if crc != header.crc or len(data) != first + size + header.rest or first % _ALIGNED:
        return None
    return _unpacked(data, header, first, size)


def _unpacked(data: bytes | mmap.mmap, header: _Header, first: int, size: int) -> Packed | None:
    vectors = np.frombuffer(data, dtype="<f4", count=size // 4, offset=first)
    try:
        rest = _Rest.model_validate_json(json.dumps(json.loads(data[first + size :])))
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
        data if isinstance(data, mmap.mmap) else None,
    )


def _as_file(meta: VectorMeta) -> dict[str, Any]:
    """Return the metadata in the format of a metadata file."""
    known = {"tags": list(meta.tags), "text": meta.text, "text_file": meta.text_file}
    return {**thawed(meta.metadata), **{k: v for k, v in known.items() if v is not None}}


LOADING_STAGE = "vectors"
_PROGRESS_EVERY = 2_000  # files

MANY = 100_000
"""A larger folder is searched by an index of the store (extra `ann`), otherwise as int8."""

MAX_NAMED = 3
"""Files that the warning names. `VectorIndex.skipped` lists all of them."""


def load_vectors(
    folder: Path,
    reporter: Reporter,
    *,
    dimension: int | None = None,
    cache: Path | None = None,
    strict: bool = False,
    many: int = MANY,
) -> VectorIndex:
    """Load a folder of vectors; `vector_files` describes its files.

    `dimension`: the expected dimension; None means the most frequent one.
    `cache`: path of a packed file, which is used while names, sizes and modification times match.
    `many`: with a cache, more vectors than these stay in the packed file, and searches find
    candidates by an index beside it or, where the extra `ann` is missing, by int8 numbers.

    A folder that is missing or has no usable vector gives an empty index and a warning; if
    `strict`, it raises SemanticIndexError. So does a folder that cannot be read, in any case.
    """
    if dimension is not None and not 1 <= dimension <= MAX_DIMENSION:
        raise SemanticIndexError(f"dimension {dimension}: give one from 1 to {MAX_DIMENSION:,}")
    if not strict and not folder.exists():
        return _empty(folder, f"{in_one_line(str(folder))}: no such folder", reporter)
    with open_folder(folder) as opened:
        files = _without(cache, opened, listed(opened))
        mark = fingerprint(files, dimension)
        packed = read_packed(cache, mark, many) if cache is not None else None
        if packed is None:
            packed = _Loading(opened, reporter, dimension).run(files)
            kept = cache is not None and _keep(cache, mark, packed, reporter)
            if cache is not None and kept and len(packed.ids) > many:
                packed = read_packed(cache, mark, many) or packed
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
    lengths = np.concatenate([lengths_of(piece) for piece in packed.pieces()])
    metas = metas_by_row(packed.ids, packed.metas)
    index = VectorIndex(root, packed.ids, packed.vectors, metas, packed.skipped, lengths)
    if cache is None or packed.mapped is None:
        return index
    lists = open_matrix_index(
        cache.with_name(f"{cache.name}.ann") / mark, index.vectors, lengths, reporter
    )
    packed.release()
    if lists is not None:
        return replace(index, lists=lists)
    return replace(index, compact=compact(packed.pieces(), lengths, index.dimension))


def _empty(
    folder: Path, what: str, reporter: Reporter, skipped: tuple[SkippedVector, ...] = ()
) -> VectorIndex:
    reporter(Notice(f"{what}; the index is empty", "warning"))
    return VectorIndex(folder, (), np.empty((0, 0), dtype=np.float32), skipped=skipped)


def _without(
    cache: Path | None, folder: Folder, files: Sequence[ListedFile]
) -> Sequence[ListedFile]:
    """Return the files without the cache, if that lies in the folder of vectors."""
    if cache is None or cache.parent.resolve() != folder.root:
        return files
    return [file for file in files if file.name != cache.name]


def _keep(cache: Path, mark: str, packed: Packed, reporter: Reporter) -> bool:
    """Write the packed file; return whether it was written."""
    try:
        write_packed(cache, mark, packed)
    except OSError as error:  # a full disk only makes the next start slower
        reporter(Notice(f"{cache}: not kept ({error.strerror})", "warning"))
        return False
    return True


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
