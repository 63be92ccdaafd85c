"""Inverted lists: what is found of many vectors, and what lies in their files."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.search.stores.sqlite import inverted
from agent.search.stores.sqlite.inverted import IndexFile
from tests.support.stores import random_units, require

DIMENSION = 32
COUNT = 20_000


@dataclass(frozen=True)
class Given:
    """Vectors that are read by row."""

    vectors: NDArray[np.float32]

    def those(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.vectors[rows]


def around_centres(count: int, dimension: int) -> NDArray[np.float32]:
    """Vectors that are as far from one of 200 centres as it is from the origin."""
    centres = random_units(200, seed=1, dimension=dimension)
    chosen = np.random.default_rng(2).integers(0, len(centres), count)
    rows = centres[chosen] + random_units(count, seed=3, dimension=dimension)
    units: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return units


@pytest.fixture
def apart() -> Iterator[Executor]:
    require("faiss")
    with ThreadPoolExecutor(1) as executor:
        yield executor


def found_by(
    lists: inverted.Lists, shards: list[object], query: NDArray[np.float32], count: int
) -> list[int]:
    rows, cosines = inverted.search(lists, shards, query, count)
    assert sorted(cosines.tolist(), reverse=True) == cosines.tolist()
    return [int(row) for row in rows]


def made(vectors: NDArray[np.float32], apart: Executor) -> inverted.Lists:
    rows = np.arange(len(vectors))
    lists = inverted.train(Given(vectors), rows, vectors.shape[1], apart)  # type: ignore[arg-type]
    assert lists is not None
    return lists


def filled(lists: inverted.Lists, vectors: NDArray[np.float32], first: int = 0) -> object:
    shard = lists.shard()
    shard.add_with_ids(inverted.scaled(vectors), np.arange(first, first + len(vectors)))
    return shard


def test_few_lists_hold_nearly_all_of_the_best(apart: Executor) -> None:
    vectors = around_centres(COUNT, DIMENSION)
    lists = made(vectors, apart)
    shards = [filled(lists, vectors[:15_000]), filled(lists, vectors[15_000:], first=15_000)]
    assert inverted.probes_for(lists.count, COUNT * 100, 64) == 128 < lists.count / 4
    hits = 0
    for query in vectors[::1_000]:
        found = set(found_by(lists, shards, query, 64))
        hits += len(found & set(np.argsort(-(vectors @ query))[:10].tolist()))
    assert hits >= 0.97 * 10 * 20


def test_rows_come_best_first_from_all_shards_and_only_those_there_are(apart: Executor) -> None:
    vectors = random_units(90, seed=5, dimension=DIMENSION)
    lists = made(vectors, apart)
    shards = [filled(lists, vectors[:40]), filled(lists, vectors[40:], first=40)]
    found = found_by(lists, shards, vectors[50], 1_000)
    assert sorted(found) == list(range(90))
    assert found[0] == 50
    assert found_by(lists, shards, vectors[50], 3) == found[:3]
    assert found_by(lists, [], vectors[50], 3) == []


def test_coarse_cosines_are_near_the_exact_ones(apart: Executor) -> None:
    vectors = around_centres(2_000, 384)
    lists = made(vectors, apart)
    rows, cosines = inverted.search(lists, [filled(lists, vectors)], vectors[5], 500)
    errors = cosines - vectors[rows] @ vectors[5]
    assert np.std(errors) < 0.0033
    assert np.abs(errors).max() < 0.0135


def test_lists_and_probes_grow_with_what_there_is() -> None:
    assert [inverted.lists_for(n) for n in (0, 3, 100, 100_000, 1_000_000)] == [
        1,
        1,
        25,
        2_529,
        8_000,
    ]
    assert inverted.probes_for(8_000, 1_000_000, 64) == 256
    assert inverted.probes_for(8_000, 1_000_000, 64 * 4) == 512
    assert inverted.probes_for(25_000, 10_000_000, 10) == 128
    assert inverted.probes_for(25, 100, 64) == 25


def test_files_are_the_same_however_many_threads_there_are(apart: Executor, tmp_path: Path) -> None:
    import faiss

    vectors = around_centres(5_000, DIMENSION)
    files = []
    for threads in (1, 3):
        apart.submit(faiss.omp_set_num_threads, threads).result()
        lists = made(vectors, apart)
        shard = lists.shard()
        rows = np.arange(len(vectors))
        apart.submit(shard.add_with_ids, inverted.scaled(vectors), rows).result()
        files.append((inverted.write_lists(lists, tmp_path), inverted.write_shard(shard, tmp_path)))
    assert files[0] == files[1]


def test_a_shard_is_small_and_mapped(apart: Executor, tmp_path: Path) -> None:
    vectors = random_units(2_000, seed=7, dimension=384)
    lists = made(vectors, apart)
    kept = inverted.write_lists(lists, tmp_path)
    file = inverted.write_shard(filled(lists, vectors), tmp_path)
    assert file.size < 0.27 * vectors.nbytes
    again = inverted.read_lists(tmp_path, kept, 384)
    assert again is not None
    shard = inverted.read_shard(tmp_path, file, again)
    assert shard is not None
    assert file.file in Path("/proc/self/maps").read_text()
    assert found_by(again, [shard], vectors[3], 1) == [3]


def test_what_was_written_is_added_to(apart: Executor, tmp_path: Path) -> None:
    vectors = random_units(300, seed=9, dimension=DIMENSION)
    lists = made(vectors, apart)
    file = inverted.write_shard(filled(lists, vectors[:200]), tmp_path)
    written = inverted.read_shard(tmp_path, file, lists, mapped=False)
    shard = lists.shard()
    lists.merge(shard, written)
    shard.add_with_ids(inverted.scaled(vectors[200:]), np.arange(200, 300))
    found = [found_by(lists, [shard], v, 1) for v in vectors]
    assert found == [[number] for number in range(300)]


def test_only_the_file_that_was_written_is_read(apart: Executor, tmp_path: Path) -> None:
    vectors = random_units(300, seed=11, dimension=DIMENSION)
    lists = made(vectors, apart)
    file = inverted.write_shard(filled(lists, vectors), tmp_path)
    kept = inverted.write_lists(lists, tmp_path)
    assert inverted.read_shard(tmp_path, file, lists) is not None
    assert inverted.read_lists(tmp_path, kept, DIMENSION) is not None
    for changed in ({"digest": "0" * 32}, {"size": file.size + 1}, {"count": 299}):
        other = file.model_copy(update=changed)
        assert inverted.read_shard(tmp_path, other, lists) is None
    assert inverted.read_lists(tmp_path, kept, DIMENSION + 1) is None
    assert inverted.read_lists(tmp_path, file, DIMENSION) is None
    assert inverted.read_shard(tmp_path, kept, lists) is None


def test_what_is_whole_but_no_index_is_none(apart: Executor, tmp_path: Path) -> None:
    from hashlib import blake2b

    data = b"IwSq" + bytes(5_000)
    digest = blake2b(data, digest_size=16).hexdigest()
    name = f"lists-{digest}.faiss"
    (tmp_path / name).write_bytes(data)
    file = IndexFile(file=name, count=4, size=len(data), digest=digest)
    assert inverted.read_lists(tmp_path, file, DIMENSION) is None


def test_zero_vectors_make_no_lists(apart: Executor) -> None:
    zeros = np.zeros((500, DIMENSION), np.float32)
    rows = np.arange(500)
    assert inverted.train(Given(zeros), rows, DIMENSION, apart) is None  # type: ignore[arg-type]
