"""Inverted lists of faiss: vectors in int8, each in the list of the centroid nearest to it.

The one module that knows the library. A file is only given to faiss's reader when its length and
checksum are those that were noted when it was written: the reader is native code.
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
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.stores.ann_manifest import IndexFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from agent.stores.ann_reading import Reading

_SUFFIX = ".faiss"
LEAST = 64
"""Candidates up to which `_COMPARED` vectors are enough to look at."""

# Lists for the root of the number of vectors, of faiss's guideline of 4 to 16: with 4 a million
# vectors around 10,000 centres are found with a recall of 0.93 where 8 reach 0.99 in less time.
_LISTS = 8.0
_LEAST_IN_A_LIST = 4
# Vectors that are compared (1.2 ms of 384 numbers each), and lists that are searched at least. For
# questions like the stored vectors a quarter would do, but words lie apart from code: of 350,000
# real chunks so many find 0.95 of the best for commit messages.
_COMPARED = 32_000
_LEAST_PROBES = 128
# A number of a unit vector as int8. One scale for all: scores of all shards can be compared, and
# faiss compares such numbers twice as fast as those of a scale for each dimension.
_SCALE = 127.0
_SAMPLE = 16  # vectors a list to train with: half a minute for the 8,000 of a million
_ITERATIONS = 6  # of k-means; faiss makes 10
_SEED = 1

_PIECE = 1 << 20  # bytes that are written or read at a time


def is_installed() -> bool:
    """Whether the extra `ann` is there."""
    return find_spec("faiss") is not None


def lists_for(count: int) -> int:
    """Lists that so many vectors are divided among."""
    return max(1, min(count // _LEAST_IN_A_LIST, int(_LISTS * math.sqrt(count))))


def probes_for(lists: int, total: int, count: int) -> int:
    """Of so many lists of `total` vectors those to search for `count` candidates.

    The more are wanted, the further they lie, and the more lists they are in.
    """
    probes = max(_LEAST_PROBES, _COMPARED * lists / max(1, total))
    return min(lists, math.ceil(probes * math.sqrt(max(1.0, count / LEAST))))


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Centroids: what all shards of an index have in common.

    `index` is a trained index of faiss without vectors; `coarse` holds its centroids as int8, from
    which a query chooses its lists in two thirds of the time.
    """

    index: Any
    coarse: Any

    @property
    def count(self) -> int:
        """How many lists."""
        return int(self.index.nlist)

    def shard(self) -> Any:
        """A shard without vectors, to add to."""
        import faiss

        return faiss.clone_index(self.index)

    def merge(self, shard: Any, written: Any) -> None:
        """Move the vectors of a shard that was `written` to another one."""
        import faiss

        centroids = self.index.quantizer.reconstruct_n(0, self.count)
        faiss.downcast_index(written.quantizer).add(centroids)  # faiss asks for the same ones
        shard.merge_from(written, 0)


def _lists(index: Any) -> Lists:
    import faiss

    centroids = index.quantizer.reconstruct_n(0, index.nlist)
    kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
    coarse = faiss.IndexScalarQuantizer(index.d, kind, faiss.METRIC_INNER_PRODUCT)
    coarse.add(scaled(centroids))
    return Lists(index, coarse)


def scaled(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Unit vectors (n, d) as whole numbers from -127 to 127: what a byte keeps of them."""
    whole: NDArray[np.float32] = np.rint(vectors * np.float32(_SCALE))
    return whole


def train(
    reading: Reading, rows: NDArray[np.int64], dimension: int, apart: Executor
) -> Lists | None:
    """Lists for the vectors of `rows` (n,), from a sample of them; the same for the same vectors.

    None where the sample holds nothing but zero vectors. What uses all cores runs `apart`, in a
    thread of its own: OpenMP keeps helpers for each thread that has asked for them, and waits for
    ever where a fork has left them behind.
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
    index.cp.min_points_per_centroid = 1  # else faiss warns on the standard error stream
    apart.submit(index.train, scaled(sample)).result()
    return _lists(index)


def write_lists(lists: Lists, folder: Path) -> IndexFile:
    """Keep the lists. Raises OSError."""
    return _written(lists.index, folder, "lists", lists.count)


def write_shard(shard: Any, folder: Path) -> IndexFile:
    """Keep a shard, without the centroids. Raises OSError."""
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
    """The lists of a file; None where they are not what was written."""
    index = _read(folder, file, dimension, mapped=False)
    if index is None or not index.nlist == index.quantizer.ntotal == file.count or index.ntotal:
        return None
    return _lists(index)


def read_shard(folder: Path, file: IndexFile, lists: Lists, *, mapped: bool = True) -> Any | None:
    """A shard, mapped into memory or read; None where it is not what was written."""
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
    except (OSError, RuntimeError, ValueError):  # empty, or not read by this version of faiss
        return None
    if not isinstance(index, faiss.IndexIVFScalarQuantizer) or index.d != dimension:
        return None
    return index


def _digest(path: Path) -> str:
    digest = blake2b(digest_size=16)
    # Through a mapping, as faiss will: to a kernel that lets go of what nobody uses, pages that
    # were only read look unused, and a query would wait for the disk.
    with path.open("rb") as file, mmap(file.fileno(), 0, prot=PROT_READ) as data:
        for start in range(0, len(data), _PIECE):
            digest.update(memoryview(data)[start : start + _PIECE])
    return digest.hexdigest()


def search(
    lists: Lists, shards: Sequence[Any], query: NDArray[np.float32], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rows of the about `count` nearest vectors of all shards, best first, and their cosines.

    Of a cosine int8 leaves an error of 0.003 (standard deviation, at any number of dimensions).
    """
    import faiss

    # One thread: more cost more than they save, and OpenMP's die in a fork (see `train`).
    faiss.omp_set_num_threads(1)
    total = sum(int(shard.ntotal) for shard in shards)
    probes = probes_for(lists.count, total, count)
    bytewise = scaled(query[None])  # faiss compares bytes with bytes
    near, numbers = lists.coarse.search(bytewise, probes)
    scores, rows = [np.empty(0, np.float32)], [np.empty(0, np.int64)]
    for shard in shards:
        shard.nprobe = probes
        found = shard.search_preassigned(bytewise, count, numbers, near)
        scores.append(found[0][0])
        rows.append(found[1][0])
    every, named = np.concatenate(scores), np.concatenate(rows)
    order = np.lexsort((named, -every))
    order = order[named[order] >= 0][:count]  # -1: there were no more
    return named[order], every[order] / np.float32(_SCALE**2)
