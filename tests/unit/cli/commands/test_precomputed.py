"""`agent index` and `agent search --precomputed`, as far as they need no subprocess."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli.commands.index import index_command as index
from agent.cli.commands.search import search_command as search
from agent.search import collection_name
from agent.search.stores import Entry, Fields, open_store
from agent.shared.secrets.finding import MASK
from tests.support.stores import unit
from tests.support.vectors import write_vector

NAME = "my-vectors"
KEY = "sk-ant-api03-AbCdEfGh12345678901234567890"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("PATCHSHOT_STORE", "PATCHSHOT_EMBED_MODEL", "PATCHSHOT_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    place = tmp_path / NAME
    write_vector(place, "a", [3.0, 0.0], tags=["x"], text="About\ncookies", metadata={"n": [1]})
    write_vector(place, "b", [1.0, 1.0], tags=["x", "y"])
    write_vector(
        place, "c", [0.0, 2.0], text="token = ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    )
    (place / "broken.json").write_text("[NaN]")
    return place


def importing(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(index, ["--precomputed", str(folder), "--quiet", *options])


def searching(place: Path | str, *options: str, **numbers: Sequence[float]) -> Result:
    vector = ()
    if "vector" in numbers:
        Path("query.json").write_text(json.dumps(list(numbers["vector"])))
        vector = ("--vector", "query.json")
    arguments = ["--precomputed", str(place), "--quiet", *vector, *options]
    return CliRunner().invoke(search, arguments)


def found(place: Path | str, *options: str) -> list[dict[str, Any]]:
    done = searching(place, "--json", *options, vector=(1, 0))
    assert done.exit_code == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return results


def test_a_folder_is_put_into_the_store_once(folder: Path, tmp_path: Path) -> None:
    done = importing(folder, "--json")
    first = json.loads(done.stdout)
    assert first.pop("seconds") >= 0
    assert first == {
        "collection": NAME,
        "store": f"sqlite://{tmp_path}/cache/passages.sqlite",
        "dimension": 2,
        "vectors": 3,
        "written": 3,
        "removed": 0,
        "known": 0,
        "skipped": [{"name": "broken.json", "reason": first["skipped"][0]["reason"]}],
    }
    assert "1 file skipped: broken.json: not JSON" in done.stderr
    write_vector(folder, "a", [2.0, 1.0])
    assert "1 written, 2 were known; 1 file skipped" in importing(folder).stdout


def test_fresh_removes_what_the_folder_has_no_more(folder: Path) -> None:
    importing(folder)
    (folder / "a.json").unlink()
    done = importing(folder, "--fresh", "--json")
    assert json.loads(done.stdout)["removed"] == 3
    assert [one["id"] for one in found(NAME)] == ["b", "c"]


@pytest.mark.parametrize("place", ["folder", "store"])
def test_both_places_find_the_same(place: str, folder: Path) -> None:
    importing(folder)
    where = folder if place == "folder" else NAME
    results = found(where)
    assert results[0] == {
        "corpus": "precomputed",
        "id": "a",
        "similarity": 1.0,
        "tags": ["x"],
        "text": "About\ncookies",
        "metadata": {"n": [1]},
    }
    assert [one["id"] for one in results] == ["a", "b", "c"]
    similarities = [one["similarity"] for one in results]
    assert similarities == pytest.approx([1.0, 0.8536, 0.5], abs=1e-3)
    assert "ghp_" not in json.dumps(results)
    for options, expected in (
        (("--tag", "x", "--tag", "y"), ["b"]),
        (("--at-least", "0.6"), ["a", "b"]),
        (("-n", "1"), ["a"]),
        (("--tag", "z"), []),
    ):
        assert [one["id"] for one in found(where, *options)] == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give either a query in words or its vector"),
        (("x", "--vector", "q.json"), "give either a query in words or its vector"),
        (("x",), "needs the embedder that made the vectors: set PATCHSHOT_EMBED_MODEL"),
        (("--vector", "nowhere.json"), "--vector nowhere.json: cannot be read"),
        (("--vector", "my-vectors/broken.json"), "--vector my-vectors/broken.json: not JSON"),
        (("x", "--commit", "HEAD"), "--precomputed and --commit do not go together"),
    ],
)
def test_a_query_that_cannot_be_used_is_one_line(
    options: Sequence[str], said: str, folder: Path
) -> None:
    done = searching(folder, *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("place", ["folder", "store"])
def test_another_dimension_is_refused(place: str, folder: Path) -> None:
    importing(folder)
    done = searching(folder if place == "folder" else NAME, vector=(1, 2, 3))
    assert done.exit_code == 2
    assert "the query has 3 dimensions" in done.stderr


def test_a_collection_keeps_the_name_of_its_model(folder: Path, tmp_path: Path) -> None:
    assert importing(folder, "--made-by", "model-1").exit_code == 0
    assert importing(folder).exit_code == 0
    done = importing(folder, "--made-by", "model-2")
    assert done.exit_code == 2
    assert "holds vectors of model-1 (2 numbers each), not of model-2 (2)" in done.stderr


def test_entries_of_a_stranger_in_a_shared_store_are_data(folder: Path, tmp_path: Path) -> None:
    fields = Fields("precomputed", "precomputed")
    payloads = ("no json", "[]", '{"id": 1}', '{"id": "x", "more": 1}')
    with open_store(f"sqlite://{tmp_path}/cache/passages.sqlite", lambda _: None) as store:
        collection = store.collection("theirs", "m", 8)
        collection.upsert(
            Entry(f"e{n}", f"{n}", unit(1), fields, payload) for n, payload in enumerate(payloads)
        )
    done = searching("theirs", "--json", vector=unit(1).tolist())
    results = json.loads(done.stdout)["results"]
    assert [(one["id"], one["text"], one["metadata"]) for one in results] == [
        (f"e{n}", "", {}) for n in range(4)
    ]


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///x?password=SECRET",
        "postgresql://u:SECRET@127.0.0.1:1/d?password=SECRET",
        "u:SECRET@host",
        "qdrant://:SECRET/SECRET@127.0.0.1:1",
        "lancedb://u:SECRET@h?x=1",
    ],
)
def test_passwords_of_stores_are_not_shown(url: str, folder: Path) -> None:
    done = importing(folder, "--store", url)
    assert done.output
    assert "SECRET" not in done.output


def test_a_store_that_is_named_wins_over_a_folder(folder: Path, tmp_path: Path) -> None:
    store = ("--store", f"sqlite://{tmp_path}/own.db")
    importing(folder, *store)
    write_vector(folder, "later", [1.0, 0.0])
    assert [len(found(NAME, *options)) for options in (store, ())] == [3, 4]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--collection", "no/name"), "collection name 'no/name'"),
        (("--store", "mysql://h/d"), "store 'mysql': no engine of that name"),
        (("--store", "sqlite://"), "as sqlite:///FILE"),
        (("--made-by", "a\nb"), "--made-by: give a model's name of 1 to 200 printable characters"),
    ],
)
def test_what_no_store_takes_is_refused_before_files_are_read(
    options: Sequence[str], said: str, tmp_path: Path
) -> None:
    done = importing(tmp_path / "none", *options)
    assert done.exit_code != 0
    assert said in done.stderr
    assert "none" not in done.stderr


def test_a_collection_of_the_corpora_is_refused(folder: Path, tmp_path: Path) -> None:
    with open_store(f"sqlite://{tmp_path}/cache/passages.sqlite", lambda _: None) as store:
        store.collection(collection_name("m"), "m", 2)
    for options in ((), ("--made-by", "m")):
        done = importing(folder, "--collection", collection_name("m"), "--fresh", *options)
        assert done.exit_code == 2
        assert "is that of the corpora" in done.stderr


def test_texts_and_metadata_show_no_secret(folder: Path, tmp_path: Path) -> None:
    random = "q8Zk39vLx02mNbT7rWc5"
    metadata = {"api_key": random, "inner": {"password": [random], "note": f"see {KEY}"}, "n": "x"}
    text = f"{'.' * 180} {KEY}"  # a table shows the first 200 characters
    write_vector(folder, "k", [1.0, 0.0], text=text, metadata=metadata)
    importing(folder)
    data = (tmp_path / "cache" / "passages.sqlite").read_bytes()
    assert random.encode() not in data
    assert KEY.encode() not in data
    for place in (folder, NAME):
        by_id = {one["id"]: one for one in found(place)}
        assert by_id["k"]["metadata"] == {
            "api_key": MASK,
            "inner": {"password": [MASK], "note": f"see {MASK}"},
            "n": "x",
        }
        assert "sk-ant" not in searching(place, vector=(1, 0)).output
