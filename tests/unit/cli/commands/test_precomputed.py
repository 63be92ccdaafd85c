"""`agent search --precomputed`, as far as it needs no subprocess."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli.commands.search import search_command as search
from agent.shared.secrets.finding import MASK
from tests.support.vectors import write_vector

KEY = "sk-ant-api03-AbCdEfGh12345678901234567890"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("PATCHSHOT_STORE", "PATCHSHOT_EMBED_MODEL", "PATCHSHOT_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "my vectors"
    write_vector(place, "a", [3.0, 0.0], tags=["x"], text="About\ncookies", metadata={"n": [1]})
    write_vector(place, "b", [1.0, 1.0], tags=["x", "y"])
    write_vector(place, "c", [0.0, 2.0])
    (place / "broken.json").write_text("[NaN]")
    return place


def searching(folder: Path, *options: str, vector: Sequence[float] | None = None) -> Result:
    given = ()
    if vector is not None:
        Path("query.json").write_text(json.dumps(vector))
        given = ("--vector", "query.json")
    return CliRunner().invoke(search, ["--precomputed", str(folder), "--quiet", *given, *options])


def results(folder: Path, *options: str) -> list[dict[str, Any]]:
    done = searching(folder, "--json", *options, vector=(1, 0))
    assert done.exit_code == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return rows


def test_the_nearest_vectors_come_first(folder: Path) -> None:
    rows = results(folder)
    assert rows[0] == {
        "corpus": "precomputed",
        "id": "a",
        "similarity": 1.0,
        "score": 1.0,
        "score_name": "cosine",
        "tags": ["x"],
        "text": "About\ncookies",
        "metadata": {"n": [1]},
    }
    similarities = [one["similarity"] for one in rows]
    assert similarities == pytest.approx([1.0, 0.7071, 0.0], abs=1e-3)
    for options, expected in (
        ((), ["a", "b", "c"]),
        (("--tag", "x", "--tag", "y"), ["b"]),
        (("--at-least", "0.6"), ["a", "b"]),
        (("-n", "1"), ["a"]),
        (("--tag", "z"), []),
    ):
        assert [one["id"] for one in results(folder, *options)] == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give either a query in words or its vector"),
        (("x", "--vector", "q.json"), "give either a query in words or its vector"),
        (("x",), "needs the embedder that made the vectors: set PATCHSHOT_EMBED_MODEL"),
        (("--vector", "nowhere.json"), "--vector nowhere.json: cannot be read"),
        (("--vector", "my vectors/broken.json"), "--vector my vectors/broken.json: not JSON"),
        (("--vector", "my vectors/wide"), "the query has 3 dimensions"),
        (("x", "--commit", "HEAD"), "--precomputed and --commit do not go together"),
    ],
)
def test_a_query_that_cannot_be_used_is_one_line(
    options: Sequence[str], said: str, folder: Path
) -> None:
    (folder / "wide").write_text("[1, 2, 3]")
    done = searching(folder, *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_what_is_no_folder_of_vectors_is_refused(folder: Path) -> None:
    assert "give a folder of vectors" in searching(folder / "none", vector=(1, 0)).stderr


def test_texts_and_metadata_show_no_secret(folder: Path) -> None:
    random = "q8Zk39vLx02mNbT7rWc5"
    metadata = {"api_key": random, "inner": {"password": [random], "note": f"see {KEY}"}, "n": "x"}
    text = f"{'.' * 180} {KEY}"  # a table shows the first 200 characters
    write_vector(folder, "k", [1.0, 0.0], text=text, metadata=metadata)
    by_id = {one["id"]: one for one in results(folder)}
    assert by_id["k"]["metadata"] == {
        "api_key": MASK,
        "inner": {"password": [MASK], "note": f"see {MASK}"},
        "n": "x",
    }
    assert "sk-ant" not in searching(folder, vector=(1, 0)).output
