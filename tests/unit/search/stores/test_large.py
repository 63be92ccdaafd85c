"""The index that takes over above a size, at a size that a test can have."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.search.stores.base import EVERYTHING, Entry, EntryFilter, VectorCollection
from agent.search.stores.sqlite import inverted
from agent.search.stores.sqlite.large import Scale
from agent.search.stores.sqlite.store import SqliteStore
from agent.types.events import Event, Notice, StageProgress
from tests.support.full_disk import full_at
from tests.support.stores import entry, ids_of, plainly, random_units, require

pytestmark = pytest.mark.slow

DIMENSION = 16
SMALL = Scale(limit=500, tail=100, narrow=50, shard=400 * DIMENSION)
SMALL_SHARDS = Scale(limit=500, tail=100, narrow=50)
ROOT = Path(__file__).parents[4]
OPENED = Callable[..., VectorCollection]


@pytest.fixture
def said() -> list[Event]:
    return []


@pytest.fixture
def opened(tmp_path: Path, said: list[Event]) -> Iterator[OPENED]:
    stores = []

    def open_one(scale: Scale = SMALL) -> VectorCollection:
        stores.append(SqliteStore(tmp_path / "vectors.db", said.append, scale=scale))
        return stores[-1].collection("things", "model", DIMENSION)

    require("faiss")
    yield open_one
    for store in stores:
        store.close()


def some(count: int, first: int = 0, seed: int = 1) -> list[Entry]:
    vectors = random_units(count, seed=seed + first, dimension=DIMENSION)
    return [
        entry(
            f"e{n:05}",
            vector,
            project=f"p{n % 2}",
            path=f"d{n % 10}/f.py",
            tags=("rare",) if n % 200 == 7 else (),
        )
        for n, vector in enumerate(vectors, first)
    ]


def notices(said: list[Event]) -> list[str]:
    return [event.message for event in said if isinstance(event, Notice)]


def recall(collection: VectorCollection, entries: list[Entry], selection: EntryFilter) -> float:
    queries = random_units(20, seed=99, dimension=DIMENSION)
    found = collection.search(queries, 10, selection)
    hits = [
        len({match.id for match in matches} & {name for name, _ in expected})
        for query, matches in zip(queries, found, strict=True)
        if (expected := plainly(entries, query, 10, selection))
    ]
    return sum(hits) / (10 * len(hits))


def index_files(tmp_path: Path) -> set[str]:
    return {path.name for path in tmp_path.glob("vectors.db.ann/*/*")}


def test_the_switch_is_automatic_and_said(
    opened: OPENED, said: list[Event], tmp_path: Path
) -> None:
    collection = opened()
    collection.upsert(some(500))
    collection.search(random_units(1, 5, DIMENSION), 3)
    assert index_files(tmp_path) == set()
    collection.upsert(some(700, first=500))
    assert notices(said) == ["collection things: 1,200 vectors are searched by an index (int8)"]
    assert any(isinstance(event, StageProgress) for event in said)
    assert len(shards(tmp_path)) >= 3
    assert recall(collection, some(500) + some(700, first=500), EVERYTHING) >= 0.95


@pytest.mark.parametrize(
    "selection",
    [
        EntryFilter(project="p1"),
        EntryFilter(under="d3"),
        EntryFilter(under="d3", project="p1"),
        EntryFilter(tags=frozenset({"rare"})),
        EntryFilter(ids=frozenset({"e00001", "e00777"})),
    ],
    ids=["project", "folder", "both", "rare", "ids"],
)
def test_selections_hold_before_the_best_are_taken(opened: OPENED, selection: EntryFilter) -> None:
    collection = opened()
    entries = some(2_000)
    collection.upsert(entries)
    assert recall(collection, entries, selection) >= min(0.95, collection.count(selection) / 10)
    query = random_units(1, 5, DIMENSION)
    found = ids_of(collection.search(query, 10, selection)[0])
    assert len(found) == min(10, collection.count(selection))


def test_scores_are_those_of_the_stored_vectors(opened: OPENED) -> None:
    entries = some(1_000)
    collection = opened()
    collection.upsert(entries)
    best = collection.search(entries[17].vector[None], 3)[0]
    assert best[0].id == "e00017"
    assert best[0].score == pytest.approx(1.0, abs=1e-6)
    expected = dict(plainly(entries, entries[17].vector, 3))
    assert {match.id: match.score for match in best} == pytest.approx(expected, abs=1e-3)


def test_new_entries_are_found_at_once_and_taken_in_later(
    opened: OPENED, said: list[Event], tmp_path: Path
) -> None:
    collection = opened()
    collection.upsert(some(600))
    before = index_files(tmp_path)
    late = entry("late", random_units(1, 77, DIMENSION)[0])
    collection.upsert([late])
    assert index_files(tmp_path) == before
    assert ids_of(collection.search(late.vector[None], 1)[0]) == ["late"]
    collection.upsert(some(150, first=600))
    assert index_files(tmp_path) != before
    assert ids_of(collection.search(late.vector[None], 1)[0]) == ["late"]
    assert recall(collection, [*some(600), *some(150, first=600), late], EVERYTHING) >= 0.95
    assert len(notices(said)) == 2


def test_what_is_deleted_or_replaced_is_not_found(opened: OPENED) -> None:
    collection = opened()
    entries = some(1_000)
    collection.upsert(entries)
    gone = entries[3]
    moved = entry("e00004", -entries[4].vector, content="other", project="p0", path="d4/f.py")
    assert collection.delete(EntryFilter(ids=frozenset({gone.id}))) == 1
    assert collection.upsert([moved]) == 1
    assert gone.id not in ids_of(collection.search(gone.vector[None], 50)[0])
    found = collection.search(np.stack([entries[4].vector, moved.vector]), 50)
    assert "e00004" not in ids_of(found[0])
    assert ids_of(found[1])[0] == "e00004"


def test_an_index_of_which_much_is_gone_is_made_anew(
    opened: OPENED, said: list[Event], tmp_path: Path
) -> None:
    collection = opened()
    entries = some(2_000)
    collection.upsert(entries)
    before = index_files(tmp_path)
    collection.delete(EntryFilter(under="d1"))
    collection.delete(EntryFilter(under="d2"))
    left = [one for one in entries if one.fields.path not in ("d1/f.py", "d2/f.py")]
    assert recall(collection, left, EVERYTHING) >= 0.95
    assert index_files(tmp_path) == before
    collection.delete(EntryFilter(under="d3"))
    left = [one for one in left if one.fields.path != "d3/f.py"]
    assert recall(collection, left, EVERYTHING) >= 0.95
    shards = {name for name in before if name.startswith("shard-")}
    assert not shards & index_files(tmp_path)
    assert notices(said)[-1] == "collection things: 1,400 vectors are searched by an index (int8)"


def test_another_process_uses_the_index_as_it_is(
    opened: OPENED, said: list[Event], tmp_path: Path
) -> None:
    entries = some(1_000)
    opened().upsert(entries)
    files = {p: p.stat().st_mtime_ns for p in tmp_path.glob("vectors.db.ann/*/shard-*")}
    other = opened()
    assert recall(other, entries, EVERYTHING) >= 0.95
    assert {p: p.stat().st_mtime_ns for p in tmp_path.glob("vectors.db.ann/*/shard-*")} == files
    assert len(notices(said)) == 1


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def change_one_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [cut_short, change_one_byte, Path.unlink])
@pytest.mark.parametrize("file", ["shard-*", "index.json"])
def test_a_damaged_index_is_made_anew(
    opened: OPENED, tmp_path: Path, file: str, harm: Callable[[Path], None]
) -> None:
    entries = some(1_000)
    opened().upsert(entries)
    harm(next(iter(sorted(tmp_path.glob(f"vectors.db.ann/*/{file}")))))
    assert recall(opened(), entries, EVERYTHING) >= 0.95


def test_a_build_that_is_killed_leaves_the_index_as_it_was(opened: OPENED, tmp_path: Path) -> None:
    entries = some(600)
    collection = opened()
    collection.upsert(entries)
    (folder,) = (tmp_path / "vectors.db.ann").iterdir()
    (folder / "shard.tmp").write_bytes(b"half a shard")
    (folder / "index.json.tmp").write_bytes(b"{")
    more = some(600, first=600)
    opened().upsert(more)
    assert recall(collection, entries + more, EVERYTHING) >= 0.95


KILLED = """
import os, signal, sys
from pathlib import Path
from agent.types.events import StageProgress
from agent.search.stores.sqlite.large import Scale
from agent.search.stores.sqlite.store import SqliteStore
from tests.unit.search.stores.test_large import DIMENSION, SMALL, some

def killed(event):
    if isinstance(event, StageProgress) and event.done == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

with SqliteStore(Path(sys.argv[1]), killed, scale=SMALL) as store:
    store.collection("things", "model", DIMENSION).upsert(some(600, first=600))
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it in the project's folder; its own limit is what a hanging fork runs into."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )


@pytest.mark.parametrize("done", ["0", "600"])
def test_kill_9_in_a_build_leaves_the_index_as_it_was(
    opened: OPENED, tmp_path: Path, done: str
) -> None:
    entries = some(600)
    opened().upsert(entries)
    before = index_files(tmp_path)
    assert run(KILLED, str(tmp_path / "vectors.db"), done).returncode == -signal.SIGKILL
    assert before <= index_files(tmp_path)
    collection = opened()
    every = entries + some(600, first=600)
    assert recall(collection, every, EVERYTHING) >= 0.95
    assert not {name for name in index_files(tmp_path) if name.endswith(".tmp")}


FORKED = """
import os, signal, sys
from pathlib import Path
from agent.search.stores.sqlite.store import SqliteStore
from tests.unit.search.stores.test_large import DIMENSION, SMALL, some

def work(count):
    entries = some(count, first=count)
    with SqliteStore(Path(sys.argv[1]), lambda _: None, scale=SMALL) as store:
        collection = store.collection("things", "model", DIMENSION)
        collection.upsert(entries)
        return collection.search(entries[7].vector[None], 1)[0][0].id == entries[7].id

assert work(600)
child = os.fork()
if not child:
    signal.alarm(30)
    os._exit(0 if work(2_000) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_searches_and_builds(opened: OPENED, tmp_path: Path) -> None:
    done = run(FORKED, str(tmp_path / "vectors.db"))
    assert (done.returncode, done.stderr) == (0, "")


def shards(tmp_path: Path) -> set[str]:
    return {name for name in index_files(tmp_path) if name.startswith("shard-")}


def lists(tmp_path: Path) -> set[str]:
    return {name for name in index_files(tmp_path) if name.startswith("lists-")}


def test_many_small_additions_make_few_shards(opened: OPENED, tmp_path: Path) -> None:
    collection = opened(SMALL_SHARDS)
    entries = some(600)
    collection.upsert(entries)
    made = lists(tmp_path)
    for first in range(600, 1_700, 100):
        more = some(100, first=first)
        collection.upsert(more)
        entries += more
        assert len(shards(tmp_path)) <= 3
    assert lists(tmp_path) == made
    assert recall(collection, entries, EVERYTHING) >= 0.95


def test_lists_are_made_anew_when_a_collection_has_grown(opened: OPENED, tmp_path: Path) -> None:
    collection = opened(SMALL_SHARDS)
    entries = some(600)
    collection.upsert(entries)
    made = lists(tmp_path)
    collection.upsert(some(1_200, first=600))
    assert lists(tmp_path) == made
    collection.upsert(some(100, first=1_800))
    assert len(lists(tmp_path)) == 1
    assert lists(tmp_path) != made
    assert recall(collection, some(600) + some(1_200, 600) + some(100, 1_800), EVERYTHING) >= 0.95


def test_an_index_of_the_older_format_is_replaced(opened: OPENED, tmp_path: Path) -> None:
    entries = some(700)
    collection = opened()
    collection.upsert(entries)
    (folder,) = (tmp_path / "vectors.db.ann").iterdir()
    for file in folder.iterdir():
        file.unlink()
    shard = "shard-" + "0" * 32 + ".usearch"
    (folder / shard).write_bytes(b"usearch")
    old = {"file": shard, "last": 700, "count": 700, "size": 7, "digest": "0" * 32}
    manifest = {"version": 1, "dimension": DIMENSION, "shards": [old]}
    (folder / "index.json").write_text(json.dumps(manifest))
    assert recall(opened(), entries, EVERYTHING) >= 0.95
    assert shard not in index_files(tmp_path)
    assert shards(tmp_path)


def test_equal_vectors_come_in_order_of_ids(opened: OPENED) -> None:
    collection = opened()
    vector = random_units(1, 5, DIMENSION)[0]
    collection.upsert([*some(600), *(entry(f"same{n:04}", vector) for n in range(900, 500, -1))])
    found = collection.search(vector[None], 10)[0]
    assert ids_of(found) == [f"same{n:04}" for n in range(501, 511)]


def test_zero_vectors_alone_are_no_reason_to_build_again(opened: OPENED, said: list[Event]) -> None:
    collection = opened()
    zero = np.zeros(DIMENSION, np.float32)
    collection.upsert([entry(f"e{n:04}", zero) for n in range(700)])
    said.clear()
    assert ids_of(collection.search(zero[None] + 1, 3)[0]) == ["e0000", "e0001", "e0002"]
    assert said == []


def test_while_another_process_builds_search_is_exact(
    opened: OPENED, said: list[Event], tmp_path: Path
) -> None:
    entries = some(700)
    opened(Scale(limit=10_000)).upsert(entries)
    collection = opened()
    collection.search(random_units(1, 5, DIMENSION), 1)
    (folder,) = (tmp_path / "vectors.db.ann").iterdir()
    for file in [*folder.glob("shard-*"), folder / "index.json"]:
        file.unlink()
    said.clear()
    other = opened()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert recall(other, entries, EVERYTHING) == 1.0
        assert other.upsert(some(20, first=700)) == 20
    assert notices(said) == []
    more = some(150, first=720)
    other.upsert(more)
    assert notices(said) == ["collection things: 870 vectors are searched by an index (int8)"]
    assert recall(other, [*entries, *some(20, first=700), *more], EVERYTHING) >= 0.95


def test_with_a_full_disk_search_goes_on_exactly(
    opened: OPENED, said: list[Event], tmp_path: Path
) -> None:
    entries = some(2_000)
    opened(Scale(limit=10_000)).upsert(entries)
    collection = opened()
    with full_at(20_000):
        assert recall(collection, entries, EVERYTHING) == 1.0
    assert ["free some space; going on with exact search" in text for text in notices(said)] == [
        True
    ]
    assert recall(opened(), entries, EVERYTHING) >= 0.95


def test_without_the_package_search_goes_on_exactly(
    opened: OPENED, said: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inverted, "find_spec", lambda _: None)
    entries = some(700)
    collection = opened()
    collection.upsert(entries)
    assert recall(collection, entries, EVERYTHING) == 1.0
    assert recall(collection, entries, EntryFilter(project="p1")) == 1.0
    assert notices(said) == [
        "more than 500 vectors are searched exactly, which is slow: pip install 'patchshot[ann]'"
    ]


def test_zero_vectors_in_an_index(opened: OPENED) -> None:
    zero = np.zeros(DIMENSION, np.float32)
    collection = opened()
    collection.upsert([*some(600), *(entry(f"zero{n}", zero) for n in range(5))])
    assert not any("zero" in name for name in ids_of(collection.search(zero[None] + 1, 50)[0]))
    assert ids_of(collection.search(zero[None], 2)[0]) == ["e00000", "e00001"]
    assert len(collection.search(zero[None] + 1, 1_000)[0]) == 605


def test_a_dropped_collection_takes_its_index_along(opened: OPENED, tmp_path: Path) -> None:
    collection = opened()
    collection.upsert(some(600))
    store = SqliteStore(tmp_path / "vectors.db", lambda _: None, scale=SMALL)
    with store:
        store.drop("things")
    assert index_files(tmp_path) == set()
    assert collection.search(random_units(1, 5, DIMENSION), 3) == [()]
