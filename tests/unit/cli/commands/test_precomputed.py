"""`agent index` and `agent search --precomputed`, as far as they need no subprocess."""

from __future__ import annotations

import io
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agent.cli.commands.precomputed import import_by_options, search_by_options
from agent.cli.commands.precomputed_import import ImportRequest, import_folder
from agent.cli.commands.precomputed_labels import is_model, name_of
from agent.cli.commands.precomputed_search import SearchRequest, search
from agent.search import SearchPaths
from agent.search.precomputed.vector_files import write_vector
from agent.search.vectors import collection_name
from agent.shared.secrets.finding import MASK

NAME = name_of(Path("my vectors"))
MINILM = "local/all-MiniLM-L6-v2-int8-0123456789ab@256"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
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
        "collection": NAME,
        "store": f"sqlite://{tmp_path}/cache/store.sqlite",
        "dimension": 2,
        "vectors": 3,
        "held": None,
        "written": 3,
        "removed": 0,
        "known": 0,
        "skipped": [{"name": "broken.json", "reason": first["skipped"][0]["reason"]}],
        "dry_run": False,
    }
    assert "not JSON" in first["skipped"][0]["reason"]
    assert "1 file skipped: broken.json: not JSON" in err
    write_vector(folder, "a", [2.0, 1.0])
    assert importing(folder, json=False) == 0
    words = capsys.readouterr().out
    assert words.startswith(f"{NAME}: 3 vectors of 2 dimensions: 1 written, 2 were known; 1 file")


def test_fresh_removes_what_the_folder_has_no_more(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    importing(folder)
    (folder / "a.json").unlink()
    importing(folder, fresh=True)
    capsys.readouterr()
    searching(NAME, vector=vector_file(tmp_path, 1, 0))
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["results"]] == ["b", "c"]


def test_a_dry_run_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert importing(folder, dry_run=True, json=False) == 0
    said = capsys.readouterr().out
    assert said == (
        f"would put 3 vectors of 2 dimensions into {NAME} of sqlite://{tmp_path}/cache/store.sqlite"
        " (0 vectors there now); 1 file skipped; nothing was written\n"
    )
    assert not (tmp_path / "cache").exists()


def test_a_large_folder_is_searched_by_an_index_or_as_int8_with_the_same_results(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(2)
    for number, row in enumerate(random.standard_normal((120, 6))):
        write_vector(tmp_path / "v", f"v{number:03}", row, tags=["odd"] if number % 2 else [])
    (tmp_path / "q.json").write_text(json.dumps(random.standard_normal(6).tolist()))
    asked: dict[str, Any] = {"vector": str(tmp_path / "q.json"), "limit": 7, "quiet": False}

    def found(**changed: Any) -> tuple[Any, str]:
        assert searching(tmp_path / "v", **asked | changed) == 0
        out, err = capsys.readouterr()
        return json.loads(out), err

    installed = find_spec("faiss") is not None
    for options in ({}, {"tags": ("odd",)}, {"at_least": 0.8}):
        exact, said = found(**options)
        assert "index" not in said
        shutil.rmtree(tmp_path / "cache")
        large, said = found(many=100, **options)
        assert (large, "120 vectors are searched by an index" in said) == (exact, installed)
        shutil.rmtree(tmp_path / "cache")
        places = SearchPaths(tmp_path / "cache", tmp_path)
        beside = places.packed(tmp_path / "v").with_suffix(".packed.ann")
        beside.parent.mkdir(parents=True)
        beside.write_text("in the way of an index")
        large, said = found(many=100, **options)
        assert (large, "cannot be written" in said) == (exact, installed)


def dry(folder: Path, store: str | None = None, **changed: Any) -> int:
    given: dict[str, Any] = {"collection": "c", "made_by": None, "fresh": False} | changed
    request = ImportRequest(folder, Path(), dry_run=True, json=True, quiet=True, **given)
    return import_folder(request, {"store": store} if store else {})


def test_a_dry_run_says_what_the_store_holds_and_leaves_it(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    importing(folder, collection="c", made_by="m")
    capsys.readouterr()
    file = tmp_path / "cache" / "store.sqlite"
    before = file.read_bytes()
    assert dry(folder) == 0
    out = json.loads(capsys.readouterr().out)
    assert (out["held"], out["written"], out["known"], out["dry_run"]) == (3, None, None, True)
    assert dry(folder, fresh=True, made_by="n") == 0
    assert (file.read_bytes(), len(list(file.parent.glob("store.sqlite*")))) == (before, 1)


def test_a_dry_run_refuses_what_the_import_would(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wide = tmp_path / "wide"
    write_vector(wide, "w", [1.0, 2.0, 3.0])
    importing(folder, collection="c", made_by="m")
    capsys.readouterr()
    for where, changed in ((wide, {}), (folder, {"made_by": "n"})):
        assert importing(where, collection="c", **changed) == 2
        said = capsys.readouterr().err
        assert "holds vectors of m (2 numbers each), not " in said
        assert dry(where, **changed) == 2
        assert capsys.readouterr().err == said


def test_a_dry_run_says_that_the_store_cannot_be_reached(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("qdrant_client", reason="needs patchshot[qdrant]")
    down = "qdrant://127.0.0.1:1"
    assert dry(folder, down) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["store"] == f"sqlite://{tmp_path}/cache/store.sqlite"
    assert "127.0.0.1:1 cannot be" in err
    assert err.rstrip().endswith(
        f"the embedded store in {tmp_path}/cache/store.sqlite would be used"
    )
    assert dry(folder, down, fresh=True) != 0
    assert "127.0.0.1:1 cannot be" in capsys.readouterr().err


def test_a_dry_run_says_where_it_could_not_look(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("qdrant_client", reason="needs patchshot[qdrant]")
    (tmp_path / "qdrant").mkdir()
    request = ImportRequest(folder, Path(), "c", None, False, True, False, True)
    assert import_folder(request, {"store": f"qdrant://{tmp_path}/qdrant"}) == 0
    assert "(the store was not opened)" in capsys.readouterr().out
    assert list((tmp_path / "qdrant").iterdir()) == []


@pytest.mark.parametrize("place", ["folder", "store"])
def test_both_places_find_the_same(
    place: str, folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    importing(folder)
    capsys.readouterr()
    where = folder if place == "folder" else NAME
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
    where = folder if place == "folder" else NAME
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
    assert (
        "holds vectors of model-1 (2 numbers each), not of model-2 (2)" in capsys.readouterr().err
    )
    assert importing(folder, made_by="model-2", collection="other") == 0
    assert json.loads(capsys.readouterr().out)["collection"] == "other"


def test_entries_of_a_stranger_in_a_shared_store_are_data(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from agent.search.stores.base import Entry, Fields
    from agent.search.stores.sqlite.store import SqliteStore
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
INDEX |= {
    "without": None,
    "dirty": "include",
    "dry_run": False,
    "repo": Path(),
    "json": True,
    "quiet": True,
}
SEARCH: dict[str, Any] = dict.fromkeys(
    ("precomputed", "corpus", "problem", "commit", "store", "store_fallback", "embed", "query")
)
SEARCH |= {"vector": None, "tag": None, "at_least": None, "limit": 5, "expand": "off"}
SEARCH |= {"agent_name": None, "agents": None}
SEARCH |= {"preset": None, "without": None, "explain": False, "dirty": "include"}
SEARCH |= {"intents": "templates", "repo": Path(), "json": True, "quiet": True}
SETTINGS = ("store", "store_fallback", "embed", "preset", "without")


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """The settings among the options that were given."""
    return {name: given[name] for name in SETTINGS if given.get(name) is not None}


@pytest.mark.parametrize(
    ("command", "given", "said"),
    [
        (import_by_options, INDEX | {"dry_run": True}, "--dry-run means something beside"),
        (import_by_options, INDEX | {"made_by": "m"}, "--made-by means something beside"),
        (search_by_options, SEARCH | {"tag": ["t"]}, "--tag means something beside"),
        (
            import_by_options,
            INDEX | {"precomputed": ["v"], "show": True, "corpus": ["docs"]},
            "--precomputed and --corpus and --list do not go together",
        ),
        (
            search_by_options,
            SEARCH | {"precomputed": ["v"], "intents": "llm", "expand": "llm", "problem": "i.md"},
            "--precomputed and --problem and --intents llm and --expand do not go together",
        ),
    ],
)
def test_options_that_mean_nothing_here_are_refused(
    command: Any, given: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(given, settings_of(given)) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "changed", "said"),
    [
        (import_by_options, {"precomputed": [""]}, "--precomputed is empty"),
        (import_by_options, {"collection": ""}, "--collection is empty"),
        (import_by_options, {"made_by": ""}, "--made-by is empty"),
        (import_by_options, {"store": ""}, "--store is empty"),
        (search_by_options, {"precomputed": [""]}, "--precomputed is empty"),
        (search_by_options, {"vector": ""}, "--vector is empty"),
        (search_by_options, {"query": ""}, "the query is empty"),
        (search_by_options, {"tag": [""]}, "--tag is empty"),
        (import_by_options, {"precomputed": ["v", "w"]}, "and a second --precomputed do not"),
        (import_by_options, {"dirty": "ignore", "repo": Path("r")}, "and --dirty and --repo do"),
        (search_by_options, {"explain": True, "preset": "p"}, "and --preset and --explain do"),
        (search_by_options, {"without": ["ranker"]}, "--precomputed and --without do not"),
    ],
)
def test_empty_and_foreign_options_end_in_one_line(
    command: Any, changed: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = INDEX if command is import_by_options else SEARCH
    given = base | {"precomputed": ["v"]} | changed
    assert command(given, settings_of(given)) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_options_become_a_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "precomputed": [str(folder)],
        "store": f"sqlite://{folder}/../team.db",
        "collection": "c",
    }
    assert import_by_options(INDEX | given, settings_of(given)) == 0
    assert json.loads(capsys.readouterr().out)["store"].endswith("team.db")
    query = folder.parent / "q.json"
    query.write_text("[0, 1]")
    asked = {"precomputed": ["c"], "store": given["store"], "vector": str(query), "tag": ["x"]}
    assert search_by_options(SEARCH | asked, settings_of(asked)) == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["results"]] == ["b", "a"]


def url_flags(tmp_path: Path) -> dict[str, Any]:
    return {"store": f"sqlite://{tmp_path}/team.db"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:SECRET@127.0.0.1:1/d",
        "qdrant+https://:SECRET@127.0.0.1:1",
        "postgresql://127.0.0.1:1/d?user=u&password=SECRET",
        "u:SECRET@host",
        "postgresql://u:SECRET@SECRET@127.0.0.1:1/d",
        "postgresql://u:SECRET/SECRET@127.0.0.1:1/d",
        "qdrant://:SECRET/SECRET@127.0.0.1:1",
        "lancedb://u:SECRET@h?x=1",
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_passwords_of_stores_are_not_shown(
    url: str, dry_run: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ImportRequest(folder, folder, None, None, False, dry_run, False, True)
    import_folder(request, {"store": url, "store_fallback": "stop"})
    out, err = capsys.readouterr()
    assert out + err
    assert "SECRET" not in out + err


def test_names_that_had_to_be_changed_stay_apart() -> None:
    names = [
        name_of(Path(name)) for name in ("漢字", "日本", "Ünï vec", "n-vec", ".v", "v", "x" * 60)
    ]
    assert len(set(names)) == len(names)
    assert (names[3], names[5]) == ("n-vec", "v")
    assert names[0].startswith("precomputed-")
    assert names[2].startswith("n-vec-")
    assert max(map(len, names)) == 48


def test_a_folder_that_is_gone_is_found_in_the_store_by_its_name(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    importing(folder)
    folder.rename(tmp_path / "moved")
    capsys.readouterr()
    assert searching("my vectors", vector=vector_file(tmp_path, 1, 0)) == 0
    assert json.loads(capsys.readouterr().out)["searched"] == 3


def test_vectors_of_another_folder_do_not_go_in_silence(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = tmp_path / "other" / "my vectors"
    write_vector(other, "z", [1.0, 2.0])
    importing(folder)
    assert importing(other) == 0
    assert "also holds 3 vectors that the folder does not have" in capsys.readouterr().err
    assert importing(other, fresh=True) == 0
    out, err = capsys.readouterr()
    assert f"{NAME}: 4 vectors of before removed" in err
    assert json.loads(out)["removed"] == 4


def test_a_store_that_is_named_wins_over_a_folder(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = url_flags(tmp_path)
    import_folder(ImportRequest(folder, Path(), None, None, False, False, True, True), flags)
    write_vector(folder, "later", [1.0, 0.0])
    query = vector_file(tmp_path, 1, 0)
    capsys.readouterr()
    for given, searched in ((flags, 3), ({"store": None}, 4)):
        asked = SEARCH | {"precomputed": ["my vectors"], "vector": query} | given
        assert search_by_options(asked, settings_of(asked)) == 0
        assert json.loads(capsys.readouterr().out)["searched"] == searched


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("changed", "flags", "said"),
    [
        ({"collection": "no/name"}, {}, "collection name 'no/name'"),
        ({}, {"store": "mysql://h/d"}, "store mysql://h/d: no engine of that name"),
        ({}, {"store": "lancedb://"}, "as lancedb:///DIR"),
        ({"made_by": "a\nb"}, {}, "--made-by: a model's name has 1 to 200 characters"),
        ({"made_by": "m" * 201}, {}, "--made-by: a model's name has 1 to 200 characters"),
        ({"made_by": "m", "collection": collection_name("m")}, {}, "is that of the corpora"),
    ],
)
def test_what_no_store_takes_is_refused_before_files_are_read(
    dry_run: bool,
    changed: dict[str, Any],
    flags: dict[str, Any],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given: dict[str, Any] = {"collection": None, "made_by": None, "fresh": False} | changed
    request = ImportRequest(
        tmp_path / "none", Path(), dry_run=dry_run, json=False, quiet=True, **given
    )
    assert import_folder(request, flags) != 0
    err = capsys.readouterr().err
    assert said in err
    assert "none" not in err


def test_a_collection_of_the_corpora_is_not_imported_into(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from agent.search.stores.sqlite.store import SqliteStore

    (tmp_path / "cache").mkdir()
    with SqliteStore(tmp_path / "cache" / "store.sqlite", lambda _: None) as store:
        store.collection(collection_name("m"), "m", 2)
    assert importing(folder, collection=collection_name("m"), fresh=True) == 2
    assert "is that of the corpora" in capsys.readouterr().err


def test_fresh_changes_model_and_dimension(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    importing(folder, made_by="one", collection="c")
    assert importing(folder, made_by="two", collection="c", fresh=True) == 0
    wide = tmp_path / "wide"
    write_vector(wide, "w", [1.0, 2.0, 3.0])
    assert importing(wide, collection="c") == 2
    assert "holds vectors of two (2 numbers each), not (3); --fresh" in capsys.readouterr().err
    assert importing(wide, collection="c", fresh=True) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == 3


def test_a_model_can_be_named_later(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    importing(folder, collection="c")
    extra = tmp_path / "extra"
    write_vector(extra, "e", [1.0, 2.0])
    assert importing(extra, collection="c", made_by="m") == 2
    err = capsys.readouterr().err
    assert "3 vectors of it are not in this folder" in err
    assert "of precomputed" not in err
    assert importing(folder, collection="c", made_by="m") == 0
    assert importing(folder, collection="c", made_by="n") == 2
    assert "holds vectors of m (2 numbers each), not of n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "embedder", "same"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", MINILM, True),
        ("all-minilm-l6-V2", MINILM, True),
        ("v2", MINILM, False),
        ("text-embedding-3-small", "openai:text-embedding-3-small@0123456789ab", True),
        ("openai/text-embedding-3-small", "openai:text-embedding-3-small@0123456789ab", True),
        ("text-embedding-3", "openai:text-embedding-3-small@0123456789ab", False),
        ("nomic-embed-text", "openai:nomic-embed-text:latest@0123456789ab", True),
    ],
)  # fmt: skip
def test_a_model_is_known_by_the_last_part_of_its_name(
    said: str, embedder: str, same: bool
) -> None:
    assert is_model(said, embedder) == same


def test_texts_are_masked_in_the_store_and_their_faults_said(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key = "sk-ant-api03-AbCdEfGh12345678901234567890"
    write_vector(folder, "k", [1.0, 0.0], text=f"key {key}", metadata={"note": [key]})
    (folder / "b.meta.json").write_text('{"text_file": "gone.txt"}')
    assert importing(folder, dry_run=True) == 0
    assert "b: without its text: " in capsys.readouterr().err
    assert importing(folder) == 0
    assert "b: without its text: " in capsys.readouterr().err
    assert key.encode() not in (tmp_path / "cache" / "store.sqlite").read_bytes()
    assert searching(folder, vector=vector_file(tmp_path, 1, 0)) == 0
    out, err = capsys.readouterr()
    assert "b: without its text: " in err
    assert key not in out
    assert [one["name"] for one in json.loads(out)["skipped"]] == ["broken.json"]


def test_metadata_and_titles_show_no_secret(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    random, key = "q8Zk39vLx02mNbT7rWc5", "sk-ant-api03-AbCdEfGh12345678901234567890"
    metadata = {"api_key": random, "inner": {"password": [random], "note": f"see {key}"}, "n": "x"}
    text = f"{'.' * 180} {key}"  # a table shows the first 200 characters
    write_vector(folder, "k", [1.0, 0.0], text=text, metadata=metadata)
    query = vector_file(tmp_path, 1, 0)
    importing(folder)
    assert random.encode() not in (tmp_path / "cache" / "store.sqlite").read_bytes()
    for place in (folder, NAME):
        capsys.readouterr()
        assert searching(place, vector=query) == 0
        found = {one["id"]: one for one in json.loads(capsys.readouterr().out)["results"]}
        assert found["k"]["metadata"] == {
            "api_key": MASK,
            "inner": {"password": [MASK], "note": f"see {MASK}"},
            "n": "x",
        }
        assert searching(place, vector=query, json=False) == 0
        assert "sk-ant" not in capsys.readouterr().out


def test_a_search_looks_where_an_import_fell_back_to(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("qdrant_client", reason="needs patchshot[qdrant]")
    down = {"store": "qdrant://127.0.0.1:1"}
    request = ImportRequest(folder, Path(), "c", None, False, False, True, True)
    assert import_folder(request, down) == 0
    capsys.readouterr()
    asked = SEARCH | {"precomputed": ["c"], "vector": vector_file(tmp_path, 1, 0)} | down
    assert search_by_options(asked, settings_of(asked)) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["searched"] == 3
    assert "going on with the embedded store" in err
    assert search_by_options(asked, settings_of(asked | {"store_fallback": "stop"})) == 2


def test_a_server_that_refuses_ends_the_search_without_words_of_ranking(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATCHSHOT_EMBED_MODEL", "m")
    monkeypatch.setenv("PATCHSHOT_EMBED_BASE_URL", "http://127.0.0.1:1/v1")
    assert searching(folder, query="cookies") != 0
    err = capsys.readouterr().err
    assert "could not be embedded" in err
    assert "ranked" not in err


@pytest.mark.parametrize(("said", "shown"), [(None, "model not said"), ("m", "m")])
def test_a_placeholder_is_not_listed_as_a_model(
    said: str | None, shown: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from agent.cli.commands.index import manage
    from agent.cli.commands.retrieval import InspectRequest, PoolRequest

    importing(folder, made_by=said, collection="c")
    for json_wanted in (False, True):
        capsys.readouterr()
        request = InspectRequest(None, Path(), None, "include", json_wanted, True)
        assert manage(request, {}, PoolRequest(show=True)) == 0
        out = capsys.readouterr().out
        if json_wanted:
            assert json.loads(out)["collections"][0]["model"] == said
        else:
            assert f"3 entries of 2 dimensions, {shown}\n" in out
