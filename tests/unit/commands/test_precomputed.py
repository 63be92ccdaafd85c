"""`agent index` and `agent search --precomputed`, as far as they need no subprocess."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.commands.precomputed import import_by_options, search_by_options
from agent.commands.precomputed_import import ImportRequest, import_folder
from agent.commands.precomputed_search import SearchRequest, search
from agent.precomputed.writing import write_vector


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATCHSHOT_DATA_DIR", str(tmp_path / "data"))
    for name in ("PATCHSHOT_STORE", "PATCHSHOT_EMBED_MODEL", "PATCHSHOT_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "my vectors"
    write_vector(place, "a", [3.0, 0.0], tags=["x"], text="About\ncookies", metadata={"n": [1]})
    write_vector(place, "b", [1.0, 1.0], tags=["x", "y"])
    write_vector(
        place, "c", [0.0, 2.0], text="token = ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    )
    (place / "broken.json").write_text("[NaN]")
    return place


def importing(folder: Path, **changed: Any) -> int:
    given: dict[str, Any] = {"collection": None, "made_by": None, "fresh": False, "dry_run": False}
    given |= {"json": True, "quiet": True, **changed}
    return import_folder(ImportRequest(folder=folder, repo=folder, **given), {})


def searching(place: Path | str, **changed: Any) -> int:
    given: dict[str, Any] = {"query": None, "vector": None, "tags": (), "limit": 20}
    given |= {"at_least": 0.0, "json": True, "quiet": True, **changed}
    return search(SearchRequest(place=str(place), repo=Path(), **given), {})


def vector_file(tmp_path: Path, *numbers: float) -> str:
    path = tmp_path / "query.json"
    path.write_text(json.dumps(numbers))
    return str(path)


def test_a_folder_is_put_into_the_store_once(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert importing(folder) == 0
    out, err = capsys.readouterr()
    first = json.loads(out)
    assert first.pop("seconds") >= 0
    assert first == {
        "collection": "my-vectors",
        "store": f"sqlite://{tmp_path}/cache/store.sqlite",
        "dimension": 2,
        "vectors": 3,
        "written": 3,
        "known": 0,
        "skipped": [{"name": "broken.json", "reason": first["skipped"][0]["reason"]}],
        "dry_run": False,
    }
    assert "not JSON" in first["skipped"][0]["reason"]
    assert "broken.json: skipped" in err
    write_vector(folder, "a", [2.0, 1.0])
    assert importing(folder, json=False) == 0
    words = capsys.readouterr().out
    assert words.startswith(
        "my-vectors: 3 vectors of 2 dimensions: 1 written, 2 were known; 1 file"
    )


def test_fresh_removes_what_the_folder_has_no_more(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    importing(folder)
    (folder / "a.json").unlink()
    importing(folder, fresh=True)
    capsys.readouterr()
    searching("my-vectors", vector=vector_file(tmp_path, 1, 0))
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["results"]] == ["b", "c"]


def test_a_dry_run_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert importing(folder, dry_run=True, json=False) == 0
    said = capsys.readouterr().out
    assert said.startswith("would put 3 vectors of 2 dimensions into my-vectors of ")
    assert said.endswith("1 file skipped; nothing was written\n")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("place", ["folder", "store"])
def test_both_places_find_the_same(
    place: str, folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    importing(folder)
    capsys.readouterr()
    where = folder if place == "folder" else "my-vectors"
    query = vector_file(tmp_path, 5, 0)
    assert searching(where, vector=query) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["searched"] == 3
    assert found["query_by"] == f"--vector {query}"
    assert found["results"][0] == {
        "corpus": "precomputed",
        "id": "a",
        "similarity": 1.0,
        "tags": ["x"],
        "text": "About\ncookies",
        "metadata": {"n": [1]},
    }
    assert [one["id"] for one in found["results"]] == ["a", "b", "c"]
    assert [one["similarity"] for one in found["results"]] == pytest.approx(
        [1.0, 0.8536, 0.5], abs=1e-3
    )
    assert "ghp_" not in json.dumps(found)
    for changed, expected in (
        ({"tags": ("x", "y")}, ["b"]),
        ({"at_least": 0.6}, ["a", "b"]),
        ({"limit": 1}, ["a"]),
        ({"tags": ("z",)}, []),
    ):
        assert searching(where, vector=query, **changed) == 0
        out, err = capsys.readouterr()
        assert [one["id"] for one in json.loads(out)["results"]] == expected
        assert ("nothing matches" in err) == (not expected)


def test_a_table_has_a_line_a_vector(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"[1, 0]")))
    assert searching(folder, vector="-", json=False, limit=2) == 0
    assert capsys.readouterr().out == (
        "  1  1.000  [precomputed]  a  About cookies\n  2  0.854  [precomputed]  b\n"
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "give either a query in words or its vector"),
        ({"query": "x", "vector": "q.json"}, "give either a query in words or its vector"),
        ({"query": "x"}, "needs the embedder that made the vectors: set PATCHSHOT_EMBED_MODEL"),
        ({"vector": "nowhere.json"}, "--vector nowhere.json: cannot be read"),
        ({"vector": "-"}, "--vector -: not a JSON array of numbers"),
    ],
)
def test_a_query_that_cannot_be_used_is_one_line(
    changed: dict[str, str],
    said: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"a": 1}')))
    assert searching(folder, **changed) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


@pytest.mark.parametrize("place", ["folder", "store"])
def test_another_dimension_is_refused(
    place: str, folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    importing(folder)
    where = folder if place == "folder" else "my-vectors"
    assert searching(where, vector=vector_file(tmp_path, 1, 2, 3)) == 2
    err = capsys.readouterr().err
    assert "the query has 3 dimensions" in err
    assert "have 2; embed it with the model that made them" in err


def test_what_is_neither_a_folder_nor_a_collection(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert searching("nowhere", vector=vector_file(tmp_path, 1)) == 2
    assert "neither a folder nor a collection of sqlite://" in capsys.readouterr().err
    assert importing(tmp_path / "nowhere") != 0
    assert "give the folder of vectors" in capsys.readouterr().err


def test_a_collection_keeps_the_name_of_its_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert importing(folder, made_by="model-1") == 0
    assert importing(folder) == 0
    assert importing(folder, made_by="model-2") == 2
    assert "holds vectors of model-1 (2 numbers each), not of model-2" in capsys.readouterr().err
    assert importing(folder, made_by="model-2", collection="other") == 0
    assert json.loads(capsys.readouterr().out)["collection"] == "other"


def test_entries_of_a_stranger_in_a_shared_store_are_data(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from agent.stores.base import Entry, Fields
    from agent.stores.sqlite import SqliteStore
    from tests.support.stores import unit

    url = tmp_path / "cache" / "store.sqlite"
    url.parent.mkdir()
    fields = Fields("precomputed", "precomputed")
    with SqliteStore(url, lambda _: None) as store:
        collection = store.collection("theirs", "m", 8)
        collection.upsert(
            Entry(f"e{n}", f"{n}", unit(1), fields, payload)
            for n, payload in enumerate(("no json", "[]", '{"id": 1}', '{"id": "x", "more": 1}'))
        )
    query = vector_file(tmp_path, *unit(1).tolist())
    assert searching("theirs", vector=query) == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert [(one["id"], one["text"], one["metadata"]) for one in found] == [
        (f"e{n}", "", {}) for n in range(4)
    ]


INDEX: dict[str, Any] = dict.fromkeys(
    ("precomputed", "corpus", "drop", "commit", "store", "store_fallback", "embed", "collection")
)
INDEX |= {"made_by": None, "forget": False, "show": False, "intents": "templates", "fresh": False}
INDEX |= {"dry_run": False, "repo": Path(), "json": True, "quiet": True}
SEARCH: dict[str, Any] = dict.fromkeys(
    ("precomputed", "corpus", "problem", "commit", "store", "store_fallback", "embed", "query")
)
SEARCH |= {"vector": None, "tag": None, "at_least": None, "limit": 5, "expand": "off"}
SEARCH |= {"intents": "templates", "repo": Path(), "json": True, "quiet": True}


@pytest.mark.parametrize(
    ("command", "given", "said"),
    [
        (import_by_options, INDEX | {"dry_run": True}, "--dry-run means something beside"),
        (import_by_options, INDEX | {"made_by": "m"}, "--made-by means something beside"),
        (search_by_options, SEARCH | {"tag": ["t"]}, "--tag means something beside"),
        (
            import_by_options,
            INDEX | {"precomputed": Path("v"), "show": True, "corpus": ["docs"]},
            "--precomputed and --corpus and --list do not go together",
        ),
        (
            search_by_options,
            SEARCH | {"precomputed": "v", "intents": "llm", "expand": "llm", "problem": "i.md"},
            "--precomputed and --problem and --intents llm and --expand do not go together",
        ),
    ],
)
def test_options_that_mean_nothing_here_are_refused(
    command: Any, given: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(given) == 2
    assert said in capsys.readouterr().err


def test_options_become_a_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"precomputed": folder, "store": f"sqlite://{folder}/../team.db", "collection": "c"}
    assert import_by_options(INDEX | given) == 0
    assert json.loads(capsys.readouterr().out)["store"].endswith("team.db")
    query = folder.parent / "q.json"
    query.write_text("[0, 1]")
    asked = {"precomputed": "c", "store": given["store"], "vector": str(query), "tag": ["x"]}
    assert search_by_options(SEARCH | asked) == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["results"]] == ["b", "a"]
