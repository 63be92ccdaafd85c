"""`python -m benchmarks.retrieval`: speed and size of the index.

All figures of one run come from the same files, one after another, each by a process of its own.
Ratios are what to compare; seconds are for this machine only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.types.events import Event, StageProgress
from benchmarks.keeping import keep, machine, print_figures
from benchmarks.target import FILES, ISSUE, make_target

if TYPE_CHECKING:
    from agent.retrieval.index.index import Index
    from agent.types.protocols import Reporter

ROOT = Path(__file__).parent.parent
LARGE_FILES = 135_000
LIMITS = {
    "cold / bare parse": 1.5,
    "refresh after one change, s": 0.1,
    "warm query, s": 0.15,
    "peak, MB": 600.0,
    "large: peak, MB": 2_000.0,
}
"""What the index is held to; a figure above its limit is marked in the table."""

_QUERIES = 5

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a measurement works: the repository, and a folder for the cache."""

    repository: Path
    cache: Path

    @property
    def index(self) -> Path:
        """The cache file."""
        return self.cache / "index.db"


# ------------------------------------------------------------ measurements, each a process


def parse(place: Place) -> Figures:
    """Parse the files that are indexed and do nothing else."""
    import tree_sitter_python
    from tree_sitter import Language, Parser

    from agent.repository.snapshot import take_snapshot
    from agent.retrieval.index.index import target_files

    snapshot = take_snapshot(place.repository)
    contents = [snapshot.read(file.path) for file in target_files(snapshot)]
    parser = Parser(Language(tree_sitter_python.language()))
    started, processor = time.perf_counter(), time.process_time()
    for content in contents:
        parser.parse(content)
    return {
        "parse, s": time.perf_counter() - started,
        "parse CPU, s": time.process_time() - processor,
    }


def refresh(place: Place) -> Figures:
    """Bring the index up to date, as `agent index` does."""
    from agent.repository.snapshot import take_snapshot
    from agent.retrieval.index.index import Index  # noqa: F401 - imports belong to starting a process

    events: list[Event] = []
    started = time.perf_counter()
    snapshot = take_snapshot(place.repository)
    taken, taken_cpu = time.perf_counter(), time.process_time()
    summary = _index(place, events.append).refresh(snapshot)
    ended, ended_cpu = time.perf_counter(), time.process_time()
    return {
        "index CPU, s": ended_cpu - taken_cpu,
        "snapshot, s": taken - started,
        "index, s": ended - taken,
        "files": summary.files,
        "built": summary.built,
        "chunks": summary.chunks,
        "progress events": sum(isinstance(event, StageProgress) for event in events),
        "cache, MB": sum(f.stat().st_size for f in place.cache.iterdir()) / 1e6,
    }


def query(place: Place) -> Figures:
    """Rank the issue's chunks in a warm index without a model, once and then again."""
    from agent.repository.snapshot import take_snapshot
    from agent.retrieval.ranking.ranker import preset
    from agent.retrieval.ranking.retriever import HybridRetriever
    from agent.run.problem import problem_from_text

    snapshot = take_snapshot(place.repository)
    problem = problem_from_text(ISSUE, "benchmark")
    seconds, processor = [], time.process_time()
    for _ in range(_QUERIES):
        retriever = HybridRetriever(
            preset("lexical"), embedder=None, index_path=place.index, reporter=lambda _: None
        )
        started = time.perf_counter()
        ranking = asyncio.run(retriever.rank(problem, snapshot))
        seconds.append(time.perf_counter() - started)
    assert ranking.chunks[0].chunk.path == "billing_example/invoice.py"
    processor = (time.process_time() - processor) / _QUERIES
    return {
        "first query, s": seconds[0],
        "query, s": statistics.median(seconds[1:]),
        "query CPU, s": processor,
    }


def load(place: Place) -> Figures:
    """Only the index's part of a query."""
    import numpy as np

    from agent.repository.snapshot import take_snapshot
    from agent.retrieval.index.index import target_files
    from agent.retrieval.index.words import Terms, term_hash
    from agent.retrieval.ranking.graph import neighbours

    snapshot = take_snapshot(place.repository)
    files = target_files(snapshot)
    hashes = np.array(sorted(term_hash(term) for term in Terms().count(ISSUE)), dtype=np.uint64)
    index = _index(place, lambda _: None)
    corpus = index.load(snapshot, files, hashes)
    loads = _times(lambda: index.load(snapshot, files, hashes))
    seeds = {int(n): 1.0 for n in np.argsort(-corpus.text_lengths, kind="stable")[:30]}
    of_files = {int(corpus.piece_file[piece]): 1.0 for piece in seeds}
    graph = _times(lambda: neighbours(corpus, seeds, of_files))
    return {"load, s": loads, "neighbours of 30, s": graph}


def _index(place: Place, reporter: Reporter) -> Index:
    """With the encoder that the retriever uses: records without its vectors are of no use to it."""
    from agent.retrieval.embedding import static_in
    from agent.retrieval.index.index import Index

    return Index(reporter, place.index, encoder=static_in())


def _times(action: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_QUERIES):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


MEASUREMENTS: Mapping[str, Callable[[Place], Figures]] = {
    measure.__name__: measure for measure in (parse, refresh, query, load)
}


def _child(name: str, place: Place) -> None:
    figures = MEASUREMENTS[name](place)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    json.dump({**figures, "own peak, MB": own / 1024}, sys.stdout)


# --------------------------------------------------------------------------------------- the run


def measured(name: str, place: Place, timeout: float = 600.0) -> Figures:
    """One measurement in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.retrieval", "--measure", name]
    command += ["--repository", str(place.repository), "--cache", str(place.cache)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, timeout=timeout, check=True, text=True
    )
    figures: Figures = json.loads(done.stdout)
    return figures


def run(folder: Path, files: int, repeat: int) -> Figures:
    """Everything on the repository of real files: medians of `repeat` rounds."""
    repository = folder / "target"
    count, size = make_target(repository, files)
    print(f"target: {count:,} Python files, {size / 1e6:.1f} MB; {machine()}\n", flush=True)
    rounds = [_round(repository, folder / f"cache{number}") for number in range(repeat)]
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def _round(repository: Path, cache: Path) -> Figures:
    place = Place(repository, cache)
    cache.mkdir()
    parsed = measured("parse", place)
    bare, bare_cpu = parsed["parse, s"], parsed["parse CPU, s"]
    cold = measured("refresh", place)
    warm = measured("query", place)
    parts = measured("load", place)
    changed = repository / "billing_example" / "invoice.py"
    before = changed.read_text()
    try:
        changed.write_text(f"{before}\n\ndef changed_{cache.name}() -> None:\n    pass\n")
        after = measured("refresh", place)
    finally:
        changed.write_text(before)
    assert after["built"] == 1
    print(f"  bare {bare:.2f} s  cold {cold['index, s']:.2f} s", flush=True)
    peaks = [figures["own peak, MB"] for figures in (cold, warm, after)]
    return {
        "bare parse, s": bare,
        "cold, s": cold["index, s"],
        "cold / bare parse": cold["index, s"] / bare,
        "bare parse CPU, s": bare_cpu,
        "cold CPU, s": cold["index CPU, s"],
        "cold / bare parse, CPU": cold["index CPU, s"] / bare_cpu,
        "snapshot, s": cold["snapshot, s"],
        "first query, s": warm["first query, s"],
        "warm query, s": warm["query, s"],
        "query CPU, s": warm["query CPU, s"],
        "of which load, s": parts["load, s"],
        "neighbours of 30 pieces, s": parts["neighbours of 30, s"],
        "refresh after one change, s": after["index, s"],
        "refresh after one change CPU, s": after["index CPU, s"],
        "files": cold["files"],
        "chunks": cold["chunks"],
        "cache, MB": cold["cache, MB"],
        "peak, MB": max(peaks),
    }


def make_large(root: Path, count: int) -> None:
    """Make a repository of many small modules by `git fast-import`, ten times as fast as `add`."""
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True, timeout=60)
    importing = subprocess.Popen(["git", "fast-import", "--quiet"], cwd=root, stdin=subprocess.PIPE)
    assert importing.stdin is not None
    with importing.stdin as stream:
        stream.write(b"commit refs/heads/main\ncommitter bench <bench@example.invalid> 0 +0000\n")
        stream.write(b"data 4\nbase")
        for path, text in _modules(count):
            data = text.encode()
            stream.write(f"\nM 100644 inline {path}\ndata {len(data)}\n".encode() + data)
        stream.write(b"\ndone\n")
    if importing.wait(timeout=900):
        raise SystemExit("git fast-import failed")
    subprocess.run(["git", "reset", "-q", "--hard"], cwd=root, check=True, timeout=900)


def _modules(count: int) -> Iterator[tuple[str, str]]:
    """Path and text of each."""
    for number in range(count):
        other = (number * 7919) % count
        yield (
            f"p{number // 5_000:02}/q{number // 100 % 50:02}/module_{number}.py",
            f'"""Unit {number} of the synthetic repository."""\n\n'
            f"from p{other // 5_000:02}.q{other // 100 % 50:02} import module_{other}\n\n\n"
            f"class Unit{number}(Base{number % 97}):\n"
            f"    def total_{number % 1_009}(self, amount, currency='EUR'):\n"
            f"        kept = self.round_{number % 503}(amount)\n"
            f"        return kept + module_{other}.offset({number})\n\n"
            f"    def __repr__(self):\n        return 'Unit{number}'\n\n\n"
            f"def offset(value):\n    return value * {number}\n",
        )


def large(folder: Path, count: int) -> Figures:
    """Cold and warm on the synthetic repository."""
    place = Place(folder / "large", folder / "large-cache")
    place.repository.mkdir()
    place.cache.mkdir()
    make_large(place.repository, count)
    cold = measured("refresh", place, timeout=3_600)
    warm = measured("load", place, timeout=600)
    peaks = [cold["own peak, MB"], warm["own peak, MB"]]
    return {
        "large: files": cold["files"],
        "large: cold, s": cold["index, s"],
        "large: load, s": warm["load, s"],
        "large: progress events": cold["progress events"],
        "large: cache, MB": cold["cache, MB"],
        "large: peak, MB": max(peaks),
    }


def main() -> None:
    """Measure, print a table, keep the result."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=FILES)
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--large", type=int, default=LARGE_FILES, help="0 leaves it out")
    options.add_argument("--no-save", action="store_true")
    options.add_argument("--measure", choices=tuple(MEASUREMENTS), help=argparse.SUPPRESS)
    options.add_argument("--repository", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.measure:
        _child(chosen.measure, Place(chosen.repository, chosen.cache))
        return
    with tempfile.TemporaryDirectory(prefix="patchshot-bench-") as folder:
        figures = run(Path(folder), chosen.files, chosen.repeat)
        if chosen.large:
            figures |= large(Path(folder), chosen.large)
    print_figures(figures, LIMITS)
    if not chosen.no_save:
        keep("retrieval", {"figures": figures, "limits": LIMITS})


if __name__ == "__main__":
    main()
