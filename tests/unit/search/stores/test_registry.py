from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.search.stores import open_store, shown_url
from agent.types.events import Event, Notice
from tests.support.stores import require


def printed(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_a_path_is_absolute_or_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for url, place in (
        (f"sqlite://{tmp_path}/a%20b.db", tmp_path / "a b.db"),
        (f"sqlite:////{tmp_path}/b.db", tmp_path / "b.db"),
        ("sqlite://here/c.db", tmp_path / "here" / "c.db"),
        ("sqlite://~/d.db", tmp_path / "home" / "d.db"),
    ):
        with open_store(url, lambda _: None) as store:
            assert store.url == f"sqlite://{place}"
        assert place.is_file()


@pytest.mark.parametrize(
    "url",
    ["", "vectors.db", "mysql://x:SECRET@y", "x:SE@CRET@host", "sqlite://", "sqlite:///a?x=SECRET"],
)
def test_urls_that_name_no_store(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"store .*: .*(use|name) ") as caught:
        open_store(url, lambda _: None)
    assert "CRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [("qdrant://", "name a folder"), ("qdrant://:SEC/RET@host:1", "write a / @ : of the key")],
)
def test_addresses_of_qdrant_that_are_none(url: str, message: str) -> None:
    require("qdrant_client")
    with pytest.raises(ConfigurationError, match=message) as caught:
        open_store(url, lambda _: None)
    assert "SEC" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "name", "package"),
    [("lancedb:///x", "lancedb", "lancedb"), ("qdrant://h:1", "qdrant-client", "qdrant_client")],
)
def test_a_missing_extra_is_named(url: str, name: str, package: str) -> None:
    output = printed(
        f"import sys; sys.modules[{package!r}] = None\n"
        "from agent.errors import ConfigurationError\n"
        "from agent.search.stores import open_store\n"
        f"try:\n    open_store({url!r}, print)\n"
        "except ConfigurationError as error:\n    print(error)"
    )
    assert f"-m pip install '{name}<" in output
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("qdrant://me:pa:ss@w/rd@host:5/db", "qdrant://me@host:5/db"),
        ("qdrant://:key@host:6333", "qdrant://@host:6333"),
        ("qdrant://host:6333?api_key=secret", "qdrant://host:6333?..."),
        ("qdrant://host:6333", "qdrant://host:6333"),
        ("sqlite:///a@b:c.db", "sqlite:///a@b:c.db"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_nothing_heavy_is_imported_for_the_embedded_store(tmp_path: Path) -> None:
    output = printed(
        "import sys; from agent.search.stores import open_store\n"
        f"open_store('sqlite://{tmp_path}/v.db', print).close()\n"
        "print(sorted({'lancedb', 'pyarrow', 'qdrant_client'} & set(sys.modules)))"
    )
    assert output.strip() == "[]"


def test_a_store_in_memory_says_that_nothing_is_kept() -> None:
    require("qdrant_client")
    events: list[Event] = []
    with open_store("qdrant://:memory:", events.append):
        pass
    message = "vector store qdrant://:memory: is in memory: nothing is kept when the command ends"
    assert events == [Notice(message, "warning")]
