"""What every engine must do, on the real engine."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from agent.errors import StoreError, StoreMismatch
from agent.search.stores import (
    EVERYTHING,
    CollectionInfo,
    Entry,
    EntryFilter,
    Fields,
    VectorCollection,
    VectorMatch,
    VectorStore,
    score_of,
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


def the_best(found: Sequence[Sequence[VectorMatch]]) -> list[str]:
    return ids_of(found[0])


# ---------------------------------------------------------------------------------------- writing


def test_upsert_counts_what_is_new_or_has_changed(collection: VectorCollection) -> None:
    first, second = entry("a", unit(1)), entry("b", unit(0, 1))
    assert collection.upsert([first, second]) == 2
    assert collection.upsert([first, second]) == 0
    changed = replace(second, content="other", vector=unit(0, 0, 1))
    assert collection.upsert([first, changed, entry("c")]) == 2
    assert collection.count() == 3
    assert collection.upsert([]) == 0


def test_an_entry_of_the_same_text_is_not_written_again(collection: VectorCollection) -> None:
    collection.upsert([entry("a", unit(1))])
    assert collection.upsert([entry("a", unit(0, 1))]) == 0
    assert collection.search(unit(1)[None], 1)[0][0].score == pytest.approx(1.0)


@pytest.mark.parametrize(
    "other",
    [
        entry("a", project="elsewhere"),
        entry("a", corpus="docs"),
        entry("a", path="b.py"),
        entry("a", language="go"),
        entry("a", tags=("x",)),
        entry("a", payload="moved"),
    ],
    ids=["project", "corpus", "path", "language", "tags", "payload"],
)
def test_changed_fields_and_payloads_are_taken_over(
    collection: VectorCollection, other: Entry
) -> None:
    collection.upsert([entry("a"), entry("b", unit(0, 1))])
    collection.search(unit(1)[None], 2)  # whatever is kept in memory is kept now
    assert collection.upsert([other]) == 1
    assert collection.upsert([other]) == 0
    assert collection.search(unit(1)[None], 1)[0] == (
        VectorMatch("a", pytest.approx(1.0), other.fields, other.payload),
    )
    assert collection.count(EntryFilter(project=other.fields.project, ids=frozenset({"a"}))) == 1
    assert collection.count() == 2


def test_a_vector_of_another_dimension_keeps_the_whole_call_out(
    collection: VectorCollection,
) -> None:
    wrong = replace(entry("b"), vector=np.ones(DIMENSION + 1, np.float32))
    with pytest.raises(StoreMismatch, match="dimension"):
        collection.upsert([entry("a"), wrong])
    assert collection.count() == 0


def test_what_is_no_vector_or_too_long_is_refused(collection: VectorCollection) -> None:
    nan = np.full(DIMENSION, np.nan, np.float32)
    for bad in (entry("n", nan), entry("p", payload="x" * 70_000), entry("i" * 2_000)):
        with pytest.raises(StoreError):
            collection.upsert([entry("a"), bad])
    assert collection.count() == 0


def test_contents_come_back(collection: VectorCollection) -> None:
    entries = [entry(f"e{n}", v) for n, v in enumerate(random_units(700, seed=1))]
    collection.upsert([*entries, entry("e1", content="2")])  # of two with one id the last stays
    expected = {one.id: one.content for one in entries[:650]} | {"e1": "2"}
    assert collection.contents({*expected, "nowhere"}) == expected
    assert collection.contents(set()) == {}


# -------------------------------------------------------------------------------------- selecting

CHOSEN = {"project": "mine", "corpus": "docs", "path": "src/a/b.py", "language": "go"}


SELECTIONS = (
    EntryFilter(project="mine"),
    EntryFilter(corpora=frozenset({"docs", "nothing"})),
    EntryFilter(tags=frozenset({"t", "u"})),
    EntryFilter(ids=frozenset({"z1", "z2", "z3", "nowhere"})),
    EntryFilter("mine", frozenset({"docs"}), frozenset({"u"})),
)


def test_a_selection_is_applied_before_the_best_are_taken(
    engine: Engine, store: VectorStore
) -> None:
    collection = store.collection("crowd", MODEL, DIMENSION)
    crowd = 200 if engine.name == "qdrant-folder" else 5_000  # that one syncs every point
    near = unit(1) + random_units(crowd, seed=2) * 0.2
    others = [
        entry(f"n{number}", v / np.linalg.norm(v), path="src/ab/x.py", tags=("t", "v"))
        for number, v in enumerate(near)
    ]
    far = [entry(f"z{n}", unit(-1, 0.1 * n), tags=("t", "u"), **CHOSEN) for n in (1, 2, 3)]
    collection.upsert([*others, *far])
    for selection in SELECTIONS:
        found = the_best(collection.search(unit(1)[None], 10, selection))
        assert found == ["z3", "z2", "z1"], selection
        assert the_best(collection.search(unit(1)[None], 2, selection)) == ["z3", "z2"], selection
        assert collection.count(selection) == 3, selection


def test_tags_are_whole_and_must_all_be_there(collection: VectorCollection) -> None:
    collection.upsert(
        [
            entry("both", tags=("x", "y")),
            entry("one", tags=("x",)),
            entry("longer", tags=("xy", "x y")),
            entry("empty", tags=("",)),
            entry("none"),
        ]
    )
    for tags, expected in (
        ({"x"}, {"both", "one"}),
        ({"x", "y"}, {"both"}),
        ({"xy"}, {"longer"}),
        ({""}, {"empty"}),
        (set(), {"both", "one", "longer", "empty", "none"}),
    ):
        found = the_best(collection.search(unit(1)[None], 9, EntryFilter(tags=frozenset(tags))))
        assert set(found) == expected


def test_delete_removes_what_is_selected(collection: VectorCollection) -> None:
    collection.upsert(entry(f"{p}{n}", project=p) for p in "ab" for n in range(4))
    collection.search(unit(1)[None], 3)
    assert collection.delete(EntryFilter(project="a", ids=frozenset({"a1", "b1"}))) == 1
    assert the_best(collection.search(unit(1)[None], 9, EntryFilter(project="a"))) == [
        "a0",
        "a2",
        "a3",
    ]
    assert collection.delete(EntryFilter(project="a")) == 3
    assert collection.delete(EntryFilter(project="a")) == 0
    assert the_best(collection.search(unit(1)[None], 9)) == ["b0", "b1", "b2", "b3"]
    assert collection.delete(EntryFilter(ids=frozenset())) == 0
    assert collection.delete(EVERYTHING) == 4
    assert collection.count() == 0
    assert collection.search(unit(1)[None], 9) == [()]
    assert collection.upsert([entry("a1")]) == 1
    assert the_best(collection.search(unit(1)[None], 9)) == ["a1"]


# ---------------------------------------------------------------------------------------- scoring


def test_results_are_those_of_the_plainest_search(collection: VectorCollection) -> None:
    vectors = random_units(300, seed=3)
    entries = [
        entry(f"e{n:03}", v, corpus=("code", "docs")[n % 2], tags=(f"t{n % 7}",))
        for n, v in enumerate(vectors)
    ]
    collection.upsert(entries)
    queries = random_units(5, seed=4)
    for selection in (EVERYTHING, EntryFilter(corpora=frozenset({"docs"}), tags=frozenset({"t3"}))):
        for top_k in (1, 10, 400):
            found = collection.search(queries, top_k, selection)
            for query, matches in zip(queries, found, strict=True):
                expected = plainly(entries, query, top_k, selection)
                assert {m.id: m.score for m in matches} == pytest.approx(dict(expected), abs=2e-3)
                keys = [(-match.score, match.id) for match in matches]
                assert keys == sorted(keys)


def test_scores_and_thresholds_are_one_conversion(collection: VectorCollection) -> None:
    collection.upsert(
        [
            entry("same", unit(1)),
            entry("half", unit(1, 1)),
            entry("across", unit(0, 1)),
            entry("against", unit(-1)),
        ]
    )
    found = collection.search(unit(1)[None], 9)[0]
    assert ids_of(found) == ["same", "half", "across", "against"]
    cosines = (1.0, 0.5**0.5, 0.0, -1.0)
    assert [m.score for m in found] == pytest.approx([score_of(c) for c in cosines], abs=1e-3)
    assert all(0.0 <= match.score <= 1.0 for match in found)
    for least, expected in ((0.6, ["same", "half"]), (0.4, ["same", "half", "across"]), (1.1, [])):
        assert the_best(collection.search(unit(1)[None], 9, at_least=least)) == expected


def test_equal_scores_are_in_order_of_ids(collection: VectorCollection) -> None:
    names = [f"{n * 7919 % 1000:03}" for n in range(150)]
    vector = random_units(1, seed=5)[0]
    collection.upsert(entry(name, vector) for name in names)
    collection.upsert([entry("zz", random_units(1, seed=6)[0])])
    query = vector[None] + 0.1 * random_units(1, seed=7)
    for top_k in (1, 5, 30, 200):
        matches = collection.search(query, top_k)[0]
        same = [match.id for match in matches if match.id != "zz"]
        assert same == sorted(names)[: len(same)]
        assert len({match.score for match in matches if match.id != "zz"}) == 1


def test_zero_vectors_match_nothing(collection: VectorCollection) -> None:
    zero = np.zeros(DIMENSION, np.float32)
    assert collection.upsert([entry("zero", zero), entry("far", unit(-1)), entry("near")]) == 2
    found = collection.search(np.stack([unit(1), zero]), 9)
    assert [ids_of(matches) for matches in found] == [["near", "far"], []]
    assert the_best(collection.search(unit(1)[None], 9, at_least=0.001)) == ["near"]


def test_odd_questions(collection: VectorCollection) -> None:
    none = np.empty((0, DIMENSION), np.float32)
    assert collection.search(unit(1)[None], 5) == [()]
    collection.upsert([entry("a")])
    assert list(collection.search(none, 5)) == []
    assert collection.search(unit(1)[None], 0) == [()]
    assert the_best(collection.search(np.full((1, DIMENSION), np.nan, np.float32), 5)) == []
    assert [m.score for m in collection.search(unit(1)[None] * 9, 5)[0]] == pytest.approx([1.0])
    with pytest.raises(StoreMismatch, match="dimension"):
        collection.search(np.ones((1, DIMENSION - 1), np.float32), 5)


# -------------------------------------------------------------------------------- texts come back


@pytest.mark.parametrize("payload", ["", '{"json": [1, "x"]}', "x" * 65_000])
def test_payloads_come_back(collection: VectorCollection, payload: str) -> None:
    collection.upsert([entry("a", payload=payload)])
    assert collection.search(unit(1)[None], 1)[0][0].payload == payload


def test_hostile_texts_are_texts(collection: VectorCollection) -> None:
    entries = [
        Entry(
            text,
            text,
            unit(1),
            Fields(f"p{text}", f"c{text}", f"d{text}/{text}.py", f"l{text}", (text, f"t{text}")),
            text,
        )
        for text in HOSTILE
    ]
    assert collection.upsert([*entries, entry("plain", unit(0, 1))]) == len(HOSTILE) + 1
    assert collection.upsert(entries) == 0
    assert collection.contents(set(HOSTILE)) == {text: text for text in HOSTILE}
    found = {match.id: match for match in collection.search(unit(1)[None], len(HOSTILE))[0]}
    for one in entries:
        assert (found[one.id].fields, found[one.id].payload) == (one.fields, one.payload)
        for selection in (
            EntryFilter(project=one.fields.project),
            EntryFilter(corpora=frozenset({one.fields.corpus})),
            EntryFilter(tags=frozenset(one.fields.tags)),
            EntryFilter(ids=frozenset({one.id})),
        ):
            assert the_best(collection.search(unit(1)[None], 99, selection)) == [one.id]
    for one in entries:
        assert collection.delete(EntryFilter(ids=frozenset({one.id}))) == 1
    assert collection.count() == 1


# ------------------------------------------------------------------------------------ collections


def test_collections_are_listed_and_dropped(store: VectorStore) -> None:
    assert store.collections() == ()
    store.collection("b", MODEL, 4).upsert([])
    first = store.collection("a.b-c_1", "other", DIMENSION)
    first.upsert([entry("x"), entry("y")])
    assert store.collections() == (
        CollectionInfo("a.b-c_1", "other", DIMENSION, 2),
        CollectionInfo("b", MODEL, 4, 0),
    )
    store.drop("a.b-c_1")
    store.drop("never-made")
    assert [one.name for one in store.collections()] == ["b"]
    again = store.collection("a.b-c_1", MODEL, 4)
    assert again.count() == 0


def test_collections_do_not_see_each_other(store: VectorStore) -> None:
    one, two = (store.collection(name, MODEL, DIMENSION) for name in ("one", "two"))
    one.upsert([entry("same", unit(1))])
    two.upsert([entry("same", unit(0, 1)), entry("more")])
    assert one.count() == 1
    assert one.delete(EVERYTHING) == 1
    assert the_best(two.search(unit(0, 1)[None], 5)) == ["same", "more"]


@pytest.mark.parametrize(("model", "dimension"), [("other", DIMENSION), (MODEL, DIMENSION + 1)])
def test_another_model_or_dimension_never_mixes(
    engine: Engine, store: VectorStore, model: str, dimension: int
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
    entries = [entry(f"e{n}", v, payload=f"p{n}") for n, v in enumerate(random_units(50, seed=8))]
    with engine.open() as store:
        store.collection("things", MODEL, DIMENSION).upsert(entries)
    with engine.open() as store:
        collection = store.collection("things", MODEL, DIMENSION)
        assert collection.upsert(entries) == 0
        best = collection.search(entries[7].vector[None], 1)[0][0]
        assert (best.id, best.payload) == ("e7", "p7")
    assert engine.notices == []


# ------------------------------------------------------------------------------- several at a time


def test_writing_threads_lose_nothing(collection: VectorCollection) -> None:
    failures: list[BaseException] = []

    def write(thread: int) -> None:
        try:
            for batch in range(4):
                names = [f"{thread}-{batch}-{n}" for n in range(10)]
                collection.upsert(entry(name) for name in [*names, "common"])
                collection.search(unit(1)[None], 3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert collection.count() == 4 * 4 * 10 + 1
