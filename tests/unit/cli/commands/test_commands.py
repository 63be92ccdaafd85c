"""`agent search` and `agent index` with stores that cannot be had, and options in conflict."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from agent.cli.commands.index import index
from agent.cli.commands.retrieval import InspectRequest, PoolRequest
from agent.cli.commands.search import search
from agent.search.stores.base import Entry, Fields
from agent.search.stores.registry import open_store
from tests.support.corpora import FILES, quiet

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


class Call:
    """The two commands on one project, with a cache of its own."""

    def __init__(self, repository: Path, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.repository = repository
        self.folder = folder
        self.capture = capture
        self.out = self.err = ""

    @property
    def own(self) -> str:
        return f"sqlite://{quote(str(self.folder / 'cache' / 'store.sqlite'))}"

    @property
    def down(self) -> str:
        """A store whose place cannot be: below a file."""
        (self.folder / "file").write_text("x")
        return f"sqlite://{quote(str(self.folder / 'file' / 'store.sqlite'))}"

    def request(self, *, json: bool = False, quiet: bool = True) -> InspectRequest:
        return InspectRequest(None, self.repository, None, "include", json, quiet)

    def index(self, flags: Mapping[str, Any], **asked: Any) -> int:
        return self._done(index(self.request(), flags, PoolRequest(**asked)))

    def search(self, query: str, flags: Mapping[str, Any], **asked: Any) -> int:
        request = self.request(json=True)
        return self._done(search(request, query, 5, flags, PoolRequest(**asked)))

    @property
    def results(self) -> list[Any]:
        found: list[Any] = json.loads(self.out)["results"]
        return found

    def fill_own(self) -> None:
        with open_store(self.own, quiet) as store:
            entry = Entry("a", "b", np.ones(2, dtype=np.float32), Fields("p", "docs"))
            store.collection("team", "m", 2).upsert([entry])

    def own_collections(self) -> list[tuple[str, int]]:
        with open_store(self.own, quiet) as store:
            return [(info.name, info.entries) for info in store.collections()]

    def _done(self, code: int) -> int:
        self.out, self.err = self.capture.readouterr()
        return code


@pytest.fixture
def call(
    make_repository: MakeRepository,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Call:
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return Call(make_repository(FILES), tmp_path, capfd)


@pytest.mark.parametrize(
    "asked",
    [{"drop": "team"}, {"show": True}, {"fresh": True, "corpora": ("docs",)}],
    ids=["drop", "list", "fresh"],
)
def test_what_is_meant_of_a_store_that_is_down_is_done_to_no_other(
    call: Call, asked: Mapping[str, Any]
) -> None:
    call.fill_own()
    assert call.index({"store": call.down}, **asked) == 2
    assert "cannot be used" in call.err
    assert call.own_collections() == [("team", 1)]


def test_a_search_goes_on_in_memory_where_the_cache_cannot_be_written(call: Call) -> None:
    (call.folder / "cache").write_text("no folder")
    assert call.search("cookies that are out of date", {}, corpora=("docs",)) == 0
    assert call.results[0]["symbol"] == "CookieJar.expire"
    assert call.results[0]["similarity"] > 0.5
    assert "going on in memory" in call.err
    assert not Path(":memory:").exists()


def test_a_damaged_store_is_said_even_when_quiet(call: Call) -> None:
    call.fill_own()
    file = call.folder / "cache" / "store.sqlite"
    file.write_bytes(file.read_bytes()[:100] + b"\xff" * 4_000)
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    assert call.search("cookies out of date", {}, corpora=("docs",)) == 0
    assert "is damaged; moved to store.sqlite.bad" in call.err


@pytest.mark.parametrize("corpora", [(), ("code", "docs")])
def test_nothing_matches_is_said(call: Call, corpora: tuple[str, ...]) -> None:
    assert call.search("?!", {}, corpora=corpora) == 0
    assert call.results == []
    assert "nothing matches" in call.err


def test_an_empty_query_is_named_as_one(call: Call) -> None:
    assert call.search(" ", {}) == 2
    assert "the query is empty" in call.err


@pytest.mark.parametrize("asked", [{"at_least": 0.01}, {"expand": "project"}])
def test_a_threshold_or_more_words_name_no_corpus(call: Call, asked: Mapping[str, Any]) -> None:
    assert call.search("cookies out of date", {}, **asked) == 0
    assert {hit.get("corpus", "code") for hit in call.results} == {"code"}


@pytest.mark.parametrize(
    "asked",
    [
        {"show": True, "drop": "a"},
        {"drop": "a", "forget": True},
        {"forget": True, "fresh": True, "corpora": ("memory",)},
    ],
)
def test_options_that_contradict_each_other_are_refused(
    call: Call, asked: Mapping[str, Any]
) -> None:
    assert call.index({}, **asked) == 2
    assert "do not go together" in call.err


def test_forgetting_says_what_stays(call: Call) -> None:
    assert call.index({}, forget=True) == 0
    assert call.out.startswith("forgot 0 patches of this project; a store keeps its entries until")


def test_a_shallow_clone_is_said(call: Call) -> None:
    (call.repository / ".git" / "shallow").write_text("")
    assert call.search("cookies", {}, corpora=("history",)) == 0
    assert "shallow clone" in call.err
