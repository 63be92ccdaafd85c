"""What every engine must do, on the real engine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from agent.errors import StoreError, StoreMismatch
from agent.search.stores import (
    EVERYTHING,
    CollectionInfo,
    Entry,
    EntryFilter,
    VectorCollection,
    VectorStore,
)
from tests.support.stores import (
    DIMENSION,
    MODEL,
    Engine,
    entry,
    ids_of,
    plainly,
    random_units,
    unit,
)

HOSTILE = (
    "'; DROP TABLE entry; --",
    'quote\'s "double" `tick`',
    "back\\slash \\' \\n",
    "line\nbreak\r\ttab",
    "ünïcödé 漢字 🙂 \u202e",
    "percent %s %(x)s _ % ?",
    "{curly} [square] $1 :name",
    "NUL \x00 and \x1a \x1f marks",
    "lone surrogate \udcff",
    " spaces ",
    "*",
)


def best(
    collection: VectorCollection, top_k: int = 9, selection: EntryFilter = EVERYTHING
) -> list[str]:
    return ids_of(collection.search(unit(1), top_k, selection))


# ---------------------------------------------------------------------------------------- writing


def test_upsert_counts_what_is_new_or_has_changed(collection: VectorCollection) -> None:
    first, second = entry("a", unit(1)), entry("b", unit(0, 1))
    assert collection.upsert([first, second]) == 2
    assert collection.upsert([first, second]) == 0
    changed = second._replace(content="other", vector=unit(0, 0, 1))
    assert collection.upsert([first, changed, entry("c")]) == 2
    assert collection.count() == 3
    assert collection.upsert([]) == 0


def test_an_entry_of_the_same_text_keeps_its_vector(collection: VectorCollection) -> None:
    collection.upsert([entry("a", unit(1))])
    assert collection.upsert([entry("a", unit(0, 1))]) == 0
    assert collection.search(unit(1), 1)[0].score == pytest.approx(1.0)


@pytest.mark.parametrize("changed", [{"project": "elsewhere"}, {"corpus": "docs"}])
def test_changed_fields_are_taken_over(
    collection: VectorCollection, changed: dict[str, str]
) -> None:
    collection.upsert([entry("a"), entry("b", unit(0, 1))])
    other = entry("a", **changed)
    assert [collection.upsert([other]) for _ in range(2)] == [1, 0]
    assert best(collection, 9, EntryFilter(**changed)) == ["a"]
    assert collection.count() == 2


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (entry("b", np.ones(DIMENSION + 1, np.float32)), StoreMismatch),
        (entry("n", np.full(DIMENSION, np.nan, np.float32)), StoreError),
        (entry("i" * 2_000), StoreError),
    ],
)
def test_a_bad_entry_keeps_the_whole_call_out(
    collection: VectorCollection, bad: Entry, error: type[Exception]
) -> None:
    with pytest.raises(error):
        collection.upsert([entry("a"), bad])
    assert collection.count() == 0


def test_contents_come_back(collection: VectorCollection) -> None:
    entries = [entry(f"e{n}", v) for n, v in enumerate(random_units(700, seed=1))]
    collection.upsert([*entries, entry("e1", content="2")])  # of two with one id the last stays
    expected = {one.id: one.content for one in entries[:650]} | {"e1": "2"}
    assert collection.contents({*expected, "nowhere"}) == expected
    assert collection.contents(set()) == {}


# -------------------------------------------------------------------------------------- selecting


def test_a_selection_is_applied_before_the_best_are_taken(
    engine: Engine, collection: VectorCollection
) -> None:
    crowd = 200 if engine.name == "qdrant-folder" else 5_000  # that one syncs every point
    near = unit(1) + random_units(crowd, seed=2) * 0.2
    far = [entry(f"z{n}", unit(-1, 0.1 * n), project="mine", corpus="docs") for n in (1, 2, 3)]
    collection.upsert([*(entry(f"n{n}", v) for n, v in enumerate(near)), *far])
    for selection in (
        EntryFilter(project="mine"),
        EntryFilter(corpus="docs"),
        EntryFilter("mine", "docs"),
    ):
        assert best(collection, 10, selection) == ["z3", "z2", "z1"], selection
        assert best(collection, 2, selection) == ["z3", "z2"], selection
        assert collection.count(selection) == 3, selection


def test_delete_removes_what_is_selected(collection: VectorCollection) -> None:
    collection.upsert(entry(f"{p}{n}", project=p) for p in "ab" for n in range(4))
    assert best(collection, 9, EntryFilter(project="a")) == ["a0", "a1", "a2", "a3"]
    assert [collection.delete(EntryFilter(project="a")) for _ in range(2)] == [4, 0]
    assert best(collection) == ["b0", "b1", "b2", "b3"]
    assert collection.delete(EVERYTHING) == 4
    assert (collection.count(), best(collection)) == (0, [])
    assert collection.upsert([entry("a1")]) == 1
    assert best(collection) == ["a1"]


# ---------------------------------------------------------------------------------------- scoring


def test_results_are_those_of_the_plainest_search(collection: VectorCollection) -> None:
    vectors = random_units(300, seed=3)
    corpora = ("code", "docs", "other")
    entries = [entry(f"e{n:03}", v, corpus=corpora[n % 3]) for n, v in enumerate(vectors)]
    collection.upsert(entries)
    for query in random_units(5, seed=4):
        for corpus in (None, "docs"):
            for top_k in (1, 10, 400):
                matches = collection.search(query, top_k, EntryFilter(corpus=corpus))
                expected = plainly(entries, query, top_k, corpus)
                assert {m.id: m.score for m in matches} == pytest.approx(dict(expected), abs=2e-3)
                keys = [(-match.score, match.id) for match in matches]
                assert keys == sorted(keys)


def test_scores_are_cosines(collection: VectorCollection) -> None:
    vectors = {"same": unit(1), "half": unit(1, 1), "across": unit(0, 1), "against": unit(-1)}
    collection.upsert(entry(name, vector) for name, vector in vectors.items())
    found = collection.search(unit(1) * 9, 9)
    assert ids_of(found) == list(vectors)
    cosines = (1.0, 0.5**0.5, 0.0, -1.0)
    assert [m.score for m in found] == pytest.approx(cosines, abs=1e-3)
    assert all(-1.0 <= match.score <= 1.0 for match in found)


def test_equal_scores_are_in_order_of_ids(collection: VectorCollection) -> None:
    names = [f"{n * 7919 % 1000:03}" for n in range(150)]
    vector = random_units(1, seed=5)[0]
    collection.upsert(entry(name, vector) for name in names)
    collection.upsert([entry("zz", random_units(1, seed=6)[0])])
    query = vector + 0.1 * random_units(1, seed=7)[0]
    for top_k in (1, 5, 30, 200):
        matches = [match for match in collection.search(query, top_k) if match.id != "zz"]
        assert ids_of(matches) == sorted(names)[: len(matches)]
        assert len({match.score for match in matches}) == 1


def test_zeros_and_odd_questions_match_nothing(collection: VectorCollection) -> None:
    assert best(collection) == []
    zero = np.zeros(DIMENSION, np.float32)
    assert collection.upsert([entry("zero", zero), entry("far", unit(-1)), entry("near")]) == 2
    assert best(collection) == ["near", "far"]
    assert best(collection, 0) == []
    for query in (zero, np.full(DIMENSION, np.nan, np.float32)):
        assert collection.search(query, 5) == ()
    with pytest.raises(StoreMismatch, match="dimension"):
        collection.search(np.ones(DIMENSION - 1, np.float32), 5)


def test_hostile_texts_are_texts(collection: VectorCollection) -> None:
    entries = [Entry(text, text, f"p{text}", f"c{text}", unit(1)) for text in HOSTILE]
    assert collection.upsert([*entries, entry("plain", unit(0, 1))]) == len(HOSTILE) + 1
    assert collection.upsert(entries) == 0
    assert collection.contents(set(HOSTILE)) == {text: text for text in HOSTILE}
    for one in entries:
        for selection in (
            EntryFilter(project=one.project),
            EntryFilter(corpus=one.corpus),
        ):
            assert best(collection, 99, selection) == [one.id]
    for one in entries:
        assert collection.delete(EntryFilter(project=one.project)) == 1
    assert collection.count() == 1


# ------------------------------------------------------------------------------------ collections


def test_collections_are_listed_apart_and_dropped(store: VectorStore) -> None:
    assert store.collections() == ()
    second = store.collection("b", MODEL, DIMENSION)
    first = store.collection("a.b-c_1", "other", 4)
    first.upsert([entry("x", np.ones(4, np.float32)), entry("y", np.ones(4, np.float32))])
    second.upsert([entry("x", unit(0, 1))])
    assert store.collections() == (
        CollectionInfo("a.b-c_1", "other", 4, 2),
        CollectionInfo("b", MODEL, DIMENSION, 1),
    )
    assert first.delete(EVERYTHING) == 2
    assert best(second) == ["x"]
    store.drop("a.b-c_1")
    store.drop("never-made")
    assert [one.name for one in store.collections()] == ["b"]
    assert store.collection("a.b-c_1", MODEL, DIMENSION).count() == 0


@pytest.mark.parametrize(("model", "dimension"), [("other", DIMENSION), (MODEL, DIMENSION + 1)])
def test_another_model_or_dimension_never_mixes(
    store: VectorStore, model: str, dimension: int
) -> None:
    store.collection("things", MODEL, DIMENSION).upsert([entry("a")])
    with pytest.raises(StoreMismatch, match=r"test-model \(8 numbers.*index again"):
        store.collection("things", model, dimension)
    assert store.collection("things", MODEL, DIMENSION).count() == 1


@pytest.mark.parametrize("name", ["", "a/b", "../up", "a b", "x" * 49, "-x", "é", 'a"b'])
def test_names_that_an_engine_may_not_take_are_refused(store: VectorStore, name: str) -> None:
    with pytest.raises(StoreError, match="name"):
        store.collection(name, MODEL, DIMENSION)


def test_entries_outlive_the_store(engine: Engine) -> None:
    if not engine.lasting:
        pytest.skip("it keeps nothing on purpose")
    entries = [entry(f"e{n}", v) for n, v in enumerate(random_units(50, seed=8))]
    with engine.open() as store:
        store.collection("things", MODEL, DIMENSION).upsert(entries)
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        assert collection.upsert(entries) == 0
        assert ids_of(collection.search(entries[7].vector, 1)) == ["e7"]
    assert engine.notices == []


def test_writing_threads_lose_nothing(collection: VectorCollection) -> None:
    def write(thread: int) -> None:
        for batch in range(4):
            names = [f"{thread}-{batch}-{n}" for n in range(10)]
            collection.upsert(entry(name) for name in [*names, "common"])
            collection.search(unit(1), 3)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, range(4))) == [None] * 4
    assert collection.count() == 4 * 4 * 10 + 1
