"""What several processes at one store must keep, for every engine that they may share.

`python -m tests.support.store_processes URL NAME BATCHES SIZE` is one that writes. It says "ready"
when the collection is open, and a line for each batch that is stored. Batches of all writers share
one entry, "common".
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from agent.search.stores import open_store
from tests.support.stores import DIMENSION, MODEL, Engine, entry, ids_of, random_units, unit

ROOT = Path(__file__).resolve().parents[2]


def two_writers_lose_nothing(engine: Engine) -> None:
    """Two processes write to a store that neither has made before."""
    writers = [start(engine.url, name, batches=6, size=20) for name in ("one", "two")]
    for writer in writers:
        writer.communicate(timeout=100)
        assert writer.returncode == 0
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        assert collection.count() == 2 * 6 * 20 + 1
        found = ids_of(collection.search(unit(1), 500))
        assert len(found) == len(set(found)) == 2 * 6 * 20 + 1
    assert engine.notices == []


def a_killed_writer_leaves_whole_batches(engine: Engine) -> None:
    """Killed in the middle of a batch: all that was said to be stored is there, nothing by half."""
    for number in range(2):
        writer = start(engine.url, f"w{number}", batches=200, size=300)
        told = lines(writer, 4 + number)
        assert told[0] == "ready"
        writer.kill()
        writer.communicate(timeout=30)
        with engine.open() as store:
            collection = store.collection("things", MODEL, DIMENSION)
            found = ids_of(collection.search(unit(1), 100_000))
            batches = Counter(re.sub("-[0-9]+$", "", name) for name in found if name != "common")
            own = [name for name in batches if name.startswith(f"w{number}-")]
            assert set(batches.values()) == {300}
            assert len(own) >= 3 + number
            assert collection.upsert([]) == 0
            assert len(found) == collection.count()
    assert engine.notices == []


def start(url: str, name: str, batches: int, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.store_processes", url, name, str(batches)]
    return subprocess.Popen([*command, str(size)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """The next lines that it says."""
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def main() -> None:
    url, name, batches, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    vectors = random_units(size, seed=1)
    with open_store(url, lambda _: None) as store:
        collection = store.collection("things", MODEL, DIMENSION)
        print("ready", flush=True)  # noqa: T201
        for batch in range(batches):
            entries = [entry(f"{name}-{batch:03}-{n:04}", v) for n, v in enumerate(vectors)]
            collection.upsert([*entries, entry("common")])
            print(batch, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
