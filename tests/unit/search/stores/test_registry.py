from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.search.stores import check_url, open_store, shown_url, without_password_of
from agent.types.events import Event, Notice
from tests.support.stores import require


def require_engine(url: str) -> None:
    """Skip where the package that serves this URL is not installed."""
    packages = {"lancedb": "lancedb", "qdrant": "qdrant_client", "postgresql": "psycopg"}
    if package := packages.get(url.partition(":")[0]):
        require(package)


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
    "url", ["", "vectors.db", "mysql://x/y", "sqlite://", "sqlite:///a.db?x=1", "qdrant://"]
)
def test_urls_that_name_no_store(url: str) -> None:
    require_engine(url)
    with pytest.raises(ConfigurationError, match=r"store .*: .*(use|name) "):
        open_store(url, lambda _: None)


@pytest.mark.parametrize(
    ("url", "name", "package"),
    [
        ("lancedb:///x", "lancedb", "lancedb"),
        ("qdrant://h:1", "qdrant-client", "qdrant_client"),
        ("postgresql://h/d", "psycopg[binary]", "psycopg"),
    ],
)
def test_a_missing_extra_is_named(url: str, name: str, package: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from agent.errors import ConfigurationError\n"
        "from agent.search.stores import open_store\n"
        f"try:\n    open_store({url!r}, print)\n"
        "except ConfigurationError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"-m pip install '{name}<" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pa:ss@w/rd@host:5/db", "postgresql://me@host:5/db"),
        ("postgresql://host/db?user=me&password=secret&x=1", "postgresql://host/db?user=me&password=...&x=1"),
        ("qdrant://:key@host:6333", "qdrant://@host:6333"),
        ("qdrant://host:6333", "qdrant://host:6333"),
        ("sqlite:///a@b:c.db", "sqlite:///a@b:c.db"),
    ],
)  # fmt: skip
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_nothing_heavy_is_imported_for_the_embedded_store(tmp_path: Path) -> None:
    program = (
        "import sys; from agent.search.stores import open_store\n"
        f"open_store('sqlite://{tmp_path}/v.db', print).close()\n"
        "heavy = {'faiss', 'lancedb', 'pyarrow', 'qdrant_client', 'psycopg'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("me:pa@ss@host", "me@host"),
        ("postgresql://h/db?sslpassword=secret", "postgresql://h/db?sslpassword=..."),
    ],
)
def test_other_places_of_passwords_are_not_shown_either(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_driver_that_cuts_a_password_does_not_show_its_parts() -> None:
    said = "failed to resolve host 'RET%21@127.0.0.1' (SEC, RET!)"
    shown = without_password_of("postgresql://u:SEC@RET%21@127.0.0.1/d", said)
    assert shown == "failed to resolve host '...@127.0.0.1' (..., ...)"


@pytest.mark.parametrize("url", ["qdrant://:SEC/RET@host:1", "postgresql://h1:1,h2:2/d"])
def test_an_address_that_cannot_be_taken_apart_is_told_without_its_password(url: str) -> None:
    if url.startswith("postgresql"):
        check_url(url)  # several hosts are PostgreSQL's own form
        return
    with pytest.raises(ConfigurationError, match="write a / @ : of the password as") as caught:
        check_url(url)
    assert "SEC" not in str(caught.value)


def test_a_store_in_memory_says_that_nothing_is_kept() -> None:
    require("qdrant_client")
    events: list[Event] = []
    with open_store("qdrant://:memory:", events.append):
        pass
    message = "vector store qdrant://:memory: is in memory: nothing is kept when the command ends"
    assert events == [Notice(message, "warning")]


def test_a_store_without_a_place_is_refused() -> None:
    require("qdrant_client")
    with pytest.raises(ConfigurationError, match="name a folder"):
        open_store("qdrant://", lambda _: None)
