"""A process that writes to a store: `python -m tests.support.store_writer URL NAME BATCHES SIZE`.

It says "ready" when the collection is open, and a line for each batch that is stored. Batches of
all writers share one entry, "common".
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agent.search.stores import open_store
from tests.support.stores import DIMENSION, MODEL, entry, random_units

ROOT = Path(__file__).resolve().parents[2]


def start(url: str, name: str, batches: int, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.store_writer", url, name, str(batches)]
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
