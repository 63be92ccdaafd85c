"""Inverted lists of faiss: int8 vectors, each in the list of the nearest centroid.

Only this module uses faiss. The reader of faiss is native code, so it only receives a file whose
length and checksum match those recorded at writing.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import Executor
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import find_spec
from mmap import PROT_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_FORMAT = 2  # 1: graphs of usearch


class VectorReader(Protocol):
    """Reads the vectors that an index is built from, by row. Row numbers begin at 1."""

    def rows(self, after: int) -> NDArray[np.int64]:
        """Return all rows after a number, ascending."""
        ...

    def after(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the next rows (n,) after a number and their unit vectors (n, d); none at the
        end.
        """
        ...

    def those(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return unit vectors (m, d) of the rows that still exist, ascending."""
        ...


class IndexFile(BaseModel):
    """A file of an index, with the length and checksum that detect damage."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str = Field(pattern=r"^(lists|shard)-[0-9a-f]{32}\.faiss$")
    count: int = Field(ge=1)  # number of lists, or of vectors in a shard
    size: int
    digest: str


class IndexManifest(BaseModel):
    """The files of an index of rows up to `last`. Its lists were trained on `trained` vectors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = _FORMAT
    dimension: int
    last: int = 0
    trained: int = 0
    lists: IndexFile | None = None
    shards: tuple[IndexFile, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of all files of the index."""
        return tuple(one.file for one in (self.lists, *self.shards) if one is not None)


def read_manifest(path: Path, dimension: int) -> IndexManifest:
    """Read a manifest; an empty one if there is none of this format and dimension."""
    nothing = IndexManifest(dimension=dimension)
    try:
        found = IndexManifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return nothing
    return found if (found.version, found.dimension) == (_FORMAT, dimension) else nothing


_SUFFIX = ".faiss"
LEAST = 64
"""Up to this many candidates, comparing `_COMPARED` vectors is enough."""

# The number of lists is this factor times the square root of the number of vectors. faiss
# recommends 4 to 16. For a million vectors around 10,000 centres, 4 gives a recall of 0.93, while 8
# gives 0.99 in less time.
_LISTS = 8.0
_LEAST_IN_A_LIST = 4
# Number of vectors to compare (1.2 ms at d = 384), and minimum number of lists to search. For
# queries that resemble the stored vectors a quarter would be enough, but text is far from code:
# with commit messages as queries on 350,000 real chunks, this finds 0.95 of the best results.
_COMPARED = 32_000
_LEAST_PROBES = 128
# Scale from a unit vector's component to int8. All vectors share one scale, so the scores of all
# shards are comparable, and faiss compares them twice as fast as with a scale for each dimension.
_SCALE = 127.0
_SAMPLE = 16  # training vectors per list: half a minute for the 8,000 lists of a million vectors
_ITERATIONS = 6  # iterations of k-means; the default of faiss is 10
_SEED = 1

_PIECE = 1 << 20  # bytes written or read at a time


def is_installed() -> bool:
    """Whether the extra `ann` is installed."""
    return find_spec("faiss") is not None


def lists_for(count: int) -> int:
    """Return the number of lists for so many vectors."""
    return max(1, min(count // _LEAST_IN_A_LIST, int(_LISTS * math.sqrt(count))))


def probes_for(lists: int, total: int, count: int) -> int:
    """Return how many of the lists of `total` vectors to search for `count` candidates.

    More candidates need more lists, because they are farther from the query.
    """
    probes = max(_LEAST_PROBES, _COMPARED * lists / max(1, total))
    return min(lists, math.ceil(probes * math.sqrt(max(1.0, count / LEAST))))


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """The centroids that all shards of an index share.

    `index` is a trained faiss index without vectors. `coarse` has its centroids as int8, which
    takes a third less time to choose the lists of a query.
    """

    index: Any
    coarse: Any

    @property
    def count(self) -> int:
        """Return the number of lists."""
        return int(self.index.nlist)

    def shard(self) -> Any:
        """Return an empty shard to add to."""
        import faiss

        return faiss.clone_index(self.index)

    def merge(self, shard: Any, written: Any) -> None:
        """Move the vectors of the `written` shard to another shard."""
        import faiss

        centroids = self.index.quantizer.reconstruct_n(0, self.count)
        faiss.downcast_index(written.quantizer).add(centroids)  # faiss requires equal centroids
        shard.merge_from(written, 0)


def _lists(index: Any) -> Lists:
    import faiss

    centroids = index.quantizer.reconstruct_n(0, index.nlist)
    kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
    coarse = faiss.IndexScalarQuantizer(index.d, kind, faiss.METRIC_INNER_PRODUCT)
    coarse.add(scaled(centroids))
    return Lists(index, coarse)


def scaled(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return unit vectors (n, d) as whole numbers from -127 to 127, which fit in a byte."""
    whole: NDArray[np.float32] = np.rint(vectors * np.float32(_SCALE))
    return whole


def train(
    reading: VectorReader, rows: NDArray[np.int64], dimension: int, apart: Executor
) -> Lists | None:
    """Train lists for the vectors of `rows` (n,) on a sample of them. Deterministic.

    Returns None if the sample has only zero vectors. Training uses all cores and runs in `apart`, a
    separate thread: OpenMP keeps helper threads for each thread that used it, and after a fork it
    would wait for helpers that no longer exist.
    """
    import faiss

    count = lists_for(len(rows))
    size = min(len(rows), _SAMPLE * count)
    chosen = np.sort(np.random.default_rng(_SEED).choice(len(rows), size, replace=False))
    sample = reading.those(rows[chosen])
    sample = sample[sample.any(axis=1)]
    if not len(sample):
        return None
    index = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dimension),
        dimension,
        min(count, len(sample)),
        faiss.ScalarQuantizer.QT_8bit_direct_signed,
        faiss.METRIC_INNER_PRODUCT,
    )
    index.by_residual = False
    index.cp.niter, index.cp.seed = _ITERATIONS, _SEED
    index.cp.min_points_per_centroid = 1  # otherwise faiss prints a warning to stderr
    apart.submit(index.train, scaled(sample)).result()
    return _lists(index)


def write_lists(lists: Lists, folder: Path) -> IndexFile:
    """Write the lists. Raises OSError."""
    return _written(lists.index, folder, "lists", lists.count)


def write_shard(shard: Any, folder: Path) -> IndexFile:
    """Write a shard without the centroids. Raises OSError."""
    import faiss

    faiss.downcast_index(shard.quantizer).reset()
    return _written(shard, folder, "shard", int(shard.ntotal))


def _written(index: Any, folder: Path, kind: str, count: int) -> IndexFile:
    import faiss

    digest, size = blake2b(digest_size=16), 0
    draft = folder / f"{kind}.tmp"
    with draft.open("wb") as file:

        def write(piece: bytes) -> int:
            nonlocal size
            digest.update(piece)
            size += len(piece)
            return file.write(piece)

        faiss.write_index(index, faiss.PyCallbackIOWriter(write, _PIECE))
        file.flush()
        os.fsync(file.fileno())
    name = f"{kind}-{digest.hexdigest()}{_SUFFIX}"
    draft.replace(folder / name)
    return IndexFile(file=name, count=count, size=size, digest=digest.hexdigest())


def read_lists(folder: Path, file: IndexFile, dimension: int) -> Lists | None:
    """Read the lists; None if the file does not match its length and checksum."""
    index = _read(folder, file, dimension, mapped=False)
    if index is None or not index.nlist == index.quantizer.ntotal == file.count or index.ntotal:
        return None
    return _lists(index)


def read_shard(folder: Path, file: IndexFile, lists: Lists, *, mapped: bool = True) -> Any | None:
    """Map or read a shard; None if the file does not match its length and checksum."""
    index = _read(folder, file, int(lists.index.d), mapped=mapped)
    if index is None or (index.nlist, index.ntotal) != (lists.count, file.count):
        return None
    return index


def _read(folder: Path, file: IndexFile, dimension: int, *, mapped: bool) -> Any | None:
    import faiss

    path = folder / file.file
    try:
        if path.stat().st_size != file.size or _digest(path) != file.digest:
            return None
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
    except (OSError, RuntimeError, ValueError):  # empty, or unreadable for this version of faiss
        return None
    if not isinstance(index, faiss.IndexIVFScalarQuantizer) or index.d != dimension:
        return None
    return index


def _digest(path: Path) -> str:
    digest = blake2b(digest_size=16)
    # Read through a mapping, as faiss does. The kernel may evict pages that were only read as
    # unused, and a query would then wait for the disk.
    with path.open("rb") as file, mmap(file.fileno(), 0, prot=PROT_READ) as data:
        for start in range(0, len(data), _PIECE):
            digest.update(memoryview(data)[start : start + _PIECE])
    return digest.hexdigest()


def search(
    lists: Lists, shards: Sequence[Any], query: NDArray[np.float32], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return rows of about `count` nearest vectors in all shards, best first, and cosines.

    The int8 rounding error of a cosine has a standard deviation of 0.003, for any dimension.
    """
    import faiss

    # One thread is faster for one query, and OpenMP threads do not survive a fork (see `train`).
    faiss.omp_set_num_threads(1)
    total = sum(int(shard.ntotal) for shard in shards)
    probes = probes_for(lists.count, total, count)
    bytewise = scaled(query[None])  # faiss compares int8 with int8
    near, numbers = lists.coarse.search(bytewise, probes)
    scores, rows = [np.empty(0, np.float32)], [np.empty(0, np.int64)]
    for shard in shards:
        shard.nprobe = probes
        found = shard.search_preassigned(bytewise, count, numbers, near)
        scores.append(found[0][0])
        rows.append(found[1][0])
    every, named = np.concatenate(scores), np.concatenate(rows)
    order = np.lexsort((named, -every))
    order = order[named[order] >= 0][:count]  # faiss fills missing results with -1
    return named[order], every[order] / np.float32(_SCALE**2)
