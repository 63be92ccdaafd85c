"""`python -m benchmarks.vectors`: the embedded vector store from 10^4 to 10^6 vectors.

One run, one process: for each size a store is filled, its index built where it has one, and the
same queries are put to it and to numpy over all vectors in float32: what was found (recall@10), and
how long it took. The data are made: centres drawn at random (one for 100 vectors), vectors around
them, whose noise is as long as the centre (cosine of two vectors of one cluster: 0.5 on average),
and queries near some of the vectors. Directions drawn evenly have no neighbours to find: real
embeddings are not like that; one size is measured with them too, so that it is seen what it costs.
`--repos` measures the code of projects that are at hand as well (see `benchmarks.code_vectors`).
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.search.stores.base import EVERYTHING, Entry, EntryFilter, Fields
from agent.search.stores.sqlite.large import Scale
from agent.search.stores.sqlite.store import SqliteStore
from benchmarks.code_vectors import code_vectors
from benchmarks.keeping import keep, machine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.search.stores.sqlite.store import SqliteCollection

    Vectors = NDArray[np.float32]

DIMENSION = 384
SIZES = (10_000, 100_000, 1_000_000)
EVEN_SIZE = 100_001  # the smallest that has an index
TOP_K = 10
QUERIES = 100
BATCH = 10_000
LIMITS = {"recall": 0.95, "query, ms": 5.0, "memory share": 0.30}

_CLUSTER = 100  # vectors for each centre
_SPREAD = 1.0  # length of the noise, that of a centre being 1
_NEAR = 0.3  # length of what a query differs by from a vector


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one size. Times are medians but that of the processor, which other programs on the machine
    disturb least: a mean, over all threads. `memory share` is of the vectors in float32.
    """

    size: int
    dimension: int
    data: str
    way: str
    filled_s: float
    built_s: float
    recall: float
    query_ms: float
    slowest_ms: float  # the 95th percentile
    cpu_ms: float
    numpy_ms: float
    quarter_recall: float  # with a selection of one vector in four
    quarter_ms: float
    index_mb: float
    memory_share: float
    file_mb: float
    peak_mb: float
    load: float  # of the machine, when it was searched


def units(rows: Vectors) -> Vectors:
    """Rows brought to length 1."""
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def noise(random: np.random.Generator, count: int, length: float) -> Vectors:
    """Normal vectors that are about so long."""
    rows = random.standard_normal((count, DIMENSION), dtype=np.float32)
    return rows * np.float32(length / DIMENSION**0.5)


def make(size: int, *, even: bool) -> tuple[Vectors, Vectors]:
    """Vectors (size, d) and queries (QUERIES, d)."""
    random = np.random.default_rng(size)
    vectors = np.empty((size, DIMENSION), np.float32)
    centres = units(noise(random, max(1, size // _CLUSTER), 1.0))
    for start in range(0, size, BATCH):
        count = min(BATCH, size - start)
        rows = noise(random, count, _SPREAD)
        if not even:
            rows += centres[random.integers(0, len(centres), count)]
        vectors[start : start + count] = units(rows)
    chosen = random.choice(size, QUERIES, replace=False)
    return vectors, units(vectors[chosen] + noise(random, QUERIES, _NEAR))


def entries(vectors: Vectors) -> Iterator[list[Entry]]:
    """Entries in batches, one in four of them in Go."""
    for start in range(0, len(vectors), BATCH):
        yield [
            Entry(
                f"{number:08d}",
                f"{number:064x}",
                vector,
                Fields("bench", "code", f"src/{number % 997}.py", "python" if number % 4 else "go"),
                f"chunk {number}",
            )
            for number, vector in enumerate(vectors[start : start + BATCH], start)
        ]


def exactly(vectors: Vectors, queries: Vectors, step: int) -> tuple[list[set[str]], float]:
    """Ids of the best, of every vector or every fourth, and the median ms of a query, by numpy."""
    found, seconds = [], []
    some = vectors if step == 1 else np.ascontiguousarray(vectors[::step])
    for query in queries:
        started = time.perf_counter()
        scores = some @ query
        best = np.argpartition(scores, len(scores) - TOP_K)[-TOP_K:]
        seconds.append(time.perf_counter() - started)
        found.append({f"{number * step:08d}" for number in best})
    return found, statistics.median(seconds) * 1000


def ask(
    collection: SqliteCollection,
    queries: Vectors,
    expected: Sequence[set[str]],
    selection: EntryFilter = EVERYTHING,
) -> tuple[float, list[float]]:
    """Recall@10, and the ms of each query, one at a time."""
    collection.search(queries[:1], TOP_K, selection)  # opens files, counts the selection
    hits, times = 0, []
    for query, best in zip(queries, expected, strict=True):
        started = time.perf_counter()
        (matches,) = collection.search(query[None], TOP_K, selection)
        times.append((time.perf_counter() - started) * 1000)
        hits += len({match.id for match in matches} & best)
    return hits / (TOP_K * len(queries)), times


def timed(action: Callable[[], Any]) -> float:
    """Seconds of an action."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def measure(folder: Path, data: str, vectors: Vectors, queries: Vectors) -> Figures:
    """Fill a store, build its index, and compare."""
    size, dimension = vectors.shape
    path = folder / "vectors.db"
    with SqliteStore(path, lambda _: None, scale=Scale(limit=10**9)) as store:
        collection = store.collection("bench", "none", dimension)
        filled = timed(lambda: [collection.upsert(batch) for batch in entries(vectors)])
    print(f"  {size:,} filled in {filled:.0f} s", flush=True)
    with SqliteStore(path, lambda _: None) as store:
        collection = store.collection("bench", "none", dimension)
        built = timed(lambda: collection.search(queries[:1], TOP_K))
        print(f"  ready to search in {built:.0f} s", flush=True)
        best, plain = exactly(vectors, queries, 1)
        processor = time.process_time()
        recall, times = ask(collection, queries, best)
        processor = (time.process_time() - processor) / (len(queries) + 1)
        quarter, _ = exactly(vectors, queries, 4)
        go = EntryFilter(languages=frozenset({"go"}))
        quarter_recall, quarter_times = ask(collection, queries, quarter, go)
    index = sum(file.stat().st_size for file in folder.rglob("*.faiss"))
    return Figures(
        size,
        dimension,
        data,
        "int8 lists" if index else "exact",
        filled,
        built,
        recall,
        statistics.median(times),
        float(np.percentile(times, 95)),
        processor * 1000,
        plain,
        quarter_recall,
        statistics.median(quarter_times),
        index / 1e6,
        (index or vectors.nbytes) / vectors.nbytes,
        path.stat().st_size / 1e6,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        os.getloadavg()[0],
    )


HEAD = (
    "| vectors | data | way | filled, s | ready, s | recall@10 | query, ms (p95; CPU) | numpy, ms |"
    " 1 in 4: recall, ms | index, MB (of float32) | file, MB |\n"
    "|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def line(one: Figures) -> str:
    """A line of the table of growth."""
    return (
        f"| {one.size:,} x {one.dimension} | {one.data} | {one.way} | {one.filled_s:.0f}"
        f" | {one.built_s:.1f}"
        f" | {one.recall:.3f} | {one.query_ms:.1f} ({one.slowest_ms:.1f}; {one.cpu_ms:.1f})"
        f" | {one.numpy_ms:.1f}"
        f" | {one.quarter_recall:.3f}, {one.quarter_ms:.1f}"
        f" | {one.index_mb:.0f} ({one.memory_share:.0%}) | {one.file_mb:.0f} |"
    )


def missed(found: Sequence[Figures]) -> list[str]:
    """What falls short of the limits, of clustered data."""
    told = []
    for one in found:
        if one.data == "clustered" and one.recall < LIMITS["recall"]:
            told.append(f"{one.size:,}: recall {one.recall:.3f}")
    last = max(
        (one for one in found if one.data == "clustered"), key=lambda one: one.size, default=None
    )
    if last is None:
        return told
    if last.query_ms > LIMITS["query, ms"]:
        told.append(f"{last.size:,}: {last.query_ms:.1f} ms a query")
    if last.index_mb and last.memory_share > LIMITS["memory share"]:
        told.append(f"{last.size:,}: {last.memory_share:.1%} of float32")
    return told


def jobs(
    sizes: Sequence[int], repos: Sequence[Path], *, even: bool
) -> Iterator[tuple[str, Callable[[], tuple[Vectors, Vectors]]]]:
    """Names of data, and what makes them when their turn comes."""
    for size in sizes:
        yield "clustered", partial(make, size, even=False)
    if even:
        yield "even", partial(make, EVEN_SIZE, even=True)
    if repos:
        yield "code", partial(code_vectors, repos, QUERIES)


def main() -> None:
    """Measure all sizes, print the table, keep it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options.add_argument("--no-even", action="store_true", help="leave out the evenly drawn data")
    options.add_argument("--repos", type=Path, nargs="+", default=[], help="projects with code")
    options.add_argument("--no-save", action="store_true")
    chosen = options.parse_args()
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f}", flush=True)
    found = []
    for data, given in jobs(chosen.sizes, chosen.repos, even=not chosen.no_even):
        with tempfile.TemporaryDirectory(prefix="patchshot-vectors-") as folder:
            found.append(measure(Path(folder), data, *given()))
        print(line(found[-1]), flush=True)
    print("\n" + "\n".join([HEAD, *map(line, found)]))
    print(f"\nlimits missed: {'; '.join(missed(found)) or 'none'}")
    if not chosen.no_save:
        keep("vectors", {"sizes": [asdict(one) for one in found]})


if __name__ == "__main__":
    main()
