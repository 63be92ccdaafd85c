"""`agent search` and `agent index` with stores that cannot be had, and options in conflict."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import numpy as np
import pytest
from click.testing import CliRunner

from agent.cli.commands.index import index_command as index
from agent.cli.commands.search import search_command as search
from agent.search.stores import Entry, open_store
from tests.support.corpora import FILES, quiet

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


class Call:
    """The two commands on one project, with a cache of its own."""

    def __init__(self, repository: Path, folder: Path) -> None:
        self.repository = repository
        self.folder = folder
        self.out = self.err = ""

    @property
    def own(self) -> str:
        return f"sqlite://{quote(str(self.folder / 'cache' / 'passages.sqlite'))}"

    @property
    def down(self) -> str:
        """A store whose place cannot be: below a file."""
        (self.folder / "file").write_text("x")
        return f"sqlite://{quote(str(self.folder / 'file' / 'passages.sqlite'))}"

    def index(self, *options: str) -> int:
        return self._done(index, *options)

    def search(self, query: str, *options: str) -> int:
        return self._done(search, query, "--json", "-n", "5", *options)

    @property
    def results(self) -> list[Any]:
        found: list[Any] = json.loads(self.out)["results"]
        return found

    def fill_own(self) -> None:
        with open_store(self.own, quiet) as store:
            entry = Entry("a", "b", "p", "docs", np.ones(2, dtype=np.float32))
            store.collection("team", "m", 2).upsert([entry])

    def own_collections(self) -> list[tuple[str, int]]:
        with open_store(self.own, quiet) as store:
            return [(info.name, info.entries) for info in store.collections()]

    def _done(self, command: click.Command, *options: str) -> int:
        done = CliRunner().invoke(command, ["--repo", str(self.repository), "--quiet", *options])
        self.out, self.err = done.stdout, done.stderr
        return done.exit_code


@pytest.fixture
def call(
    make_repository: MakeRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Call:
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return Call(make_repository(FILES), tmp_path)


@pytest.mark.parametrize(
    "options",
    [("--drop", "team"), ("--list",), ("--fresh", "--corpus", "docs"), ("--corpus", "docs")],
    ids=["drop", "list", "fresh", "fill"],
)
def test_a_named_store_is_used_or_the_command_ends(call: Call, options: Sequence[str]) -> None:
    call.fill_own()
    assert call.index("--store", call.down, *options) == 2
    assert "cannot be used" in call.err
    assert call.own_collections() == [("team", 1)]
    assert call.search("cookies", "--store", call.down, "--corpus", "docs") == 2
    assert "cannot be used" in call.err


def test_a_search_goes_on_by_words_where_the_cache_cannot_be_written(call: Call) -> None:
    (call.folder / "cache").write_text("no folder")
    assert call.search("cookies that are out of date", "--corpus", "docs") == 0
    assert call.results[0]["symbol"] == "CookieJar.expire"
    assert "searched by words alone" in call.err
    assert call.index("--corpus", "docs") == 2


def test_a_damaged_store_is_said_even_when_quiet(call: Call) -> None:
    call.fill_own()
    file = call.folder / "cache" / "passages.sqlite"
    file.write_bytes(file.read_bytes()[:100] + b"\xff" * 4_000)
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    assert call.search("cookies out of date", "--corpus", "docs") == 0
    assert "is damaged; moved to passages.sqlite.bad" in call.err


@pytest.mark.parametrize("options", [(), ("--corpus", "code,docs")])
def test_nothing_matches_is_said(call: Call, options: Sequence[str]) -> None:
    assert call.search("?!", *options) == 0
    assert call.results == []
    assert "nothing matches" in call.err


@pytest.mark.parametrize(
    "options",
    [
        ("--list", "--drop", "a"),
        ("--drop", "a", "--forget"),
        ("--forget", "--fresh", "--corpus", "memory"),
    ],
)
def test_options_that_contradict_each_other_are_refused(call: Call, options: Sequence[str]) -> None:
    assert call.index(*options) == 2
    assert "do not go together" in call.err


def test_a_shallow_clone_is_said(call: Call) -> None:
    (call.repository / ".git" / "shallow").write_text("")
    assert call.search("cookies", "--corpus", "history") == 0
    assert "shallow clone" in call.err
