from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ConfigurationError, StoreMismatch, StoreUnreachable
from agent.search.stores import registry
from agent.search.stores.base import CollectionInfo
from agent.search.stores.registry import check_url, collections_at, open_records, open_store
from agent.search.stores.sqlite.store import SqliteStore
from agent.search.stores.urls import without_password, without_password_of
from agent.types.events import Event, Notice
from tests.support.postgres import PostgresServer
from tests.support.stores import DIMENSION, MODEL, Engine, entry, require, unit


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


def test_a_store_that_cannot_be_used_falls_back_or_stops(tmp_path: Path) -> None:
    said: list[Event] = []
    (tmp_path / "file").touch()
    url = f"sqlite://{tmp_path}/file/vectors.db"
    with pytest.raises(StoreUnreachable, match="cannot be used"):
        open_store(url, said.append)
    assert said == []
    with open_store(url, said.append, tmp_path / "own.db") as store:
        assert store.url == f"sqlite://{tmp_path}/own.db"
    (notice,) = said
    assert isinstance(notice, Notice)
    assert notice.level == "warning"
    assert f"going on with the embedded store in {tmp_path}/own.db" in notice.message


def test_what_is_not_ours_is_no_reason_to_fall_back(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreMismatch):
        open_store(f"sqlite://{tmp_path}/notes.txt", lambda _: None, tmp_path / "own.db")
    assert not (tmp_path / "own.db").exists()


@pytest.mark.parametrize(
    ("url", "extra"),
    [("lancedb:///x", "lancedb"), ("qdrant://h:1", "qdrant"), ("postgresql://h/d", "pgvector")],
)
def test_a_missing_extra_is_named(
    url: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(module: str) -> None:
        raise ImportError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(registry.importlib, "import_module", missing)
    with pytest.raises(ConfigurationError, match=rf"pip install 'patchshot\[{extra}\]'") as caught:
        open_store(url, lambda _: None, tmp_path / "own.db")
    assert "\n" not in str(caught.value)


def test_only_a_server_shares_records(tmp_path: Path) -> None:
    assert open_records(f"sqlite://{tmp_path}/vectors.db", lambda _: None) is None


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
    assert without_password(url) == shown


def test_nothing_heavy_is_imported_for_the_embedded_store(tmp_path: Path) -> None:
    program = (
        "import sys; from agent.search.stores.registry import open_store\n"
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
    assert without_password(url) == shown


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


def look(url: str) -> tuple[CollectionInfo, ...] | None:
    return collections_at(url, lambda _: None)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_store_that_is_not_there_is_empty_and_is_not_made(engine: Engine) -> None:
    assert look(engine.url) == ()
    assert list(engine.folder.iterdir()) == []


def test_what_is_there_is_told_by_name_and_left_alone(engine: Engine) -> None:
    with engine.open() as store:
        store.collection("things", MODEL, DIMENSION).upsert([entry("a", unit(1.0))])
        store.collection("empty", "other", 3)
    before = files(engine.folder)
    held = look(engine.url)
    if engine.lasting and engine.shared:
        assert held == (
            CollectionInfo("empty", "other", 3, 0),
            CollectionInfo("things", MODEL, DIMENSION, 1),
        )
    else:
        assert held == (None if engine.lasting else ())
    assert files(engine.folder) == before


def test_a_file_is_looked_at_while_another_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    with SqliteStore(path, lambda _: None) as store:
        store.collection("things", MODEL, DIMENSION).upsert([entry("a", unit(1.0))])
        (info,) = look(f"sqlite://{path}") or ()
        assert info.entries == 1
        store.collection("more", MODEL, DIMENSION)
        assert len(look(f"sqlite://{path}") or ()) == 2


@pytest.mark.parametrize("content", [b"mine", b"SQLite format 3\0" + b"?" * 200])
def test_what_is_not_ours_is_refused_and_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises((StoreMismatch, StoreUnreachable)):
        look(f"sqlite://{path}")
    assert files(tmp_path) == {path: content}


def test_a_damaged_file_is_not_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    with SqliteStore(path, lambda _: None) as store:
        store.collection("things", MODEL, DIMENSION)
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"?" * (len(data) - 4096))
    before = files(tmp_path)
    with pytest.raises(StoreUnreachable, match="cannot be used"):
        look(f"sqlite://{path}")
    assert files(tmp_path) == before


@pytest.mark.parametrize("scheme", ["sqlite", "lancedb"])
def test_a_place_below_a_file_cannot_be_one(scheme: str, tmp_path: Path) -> None:
    require_engine(f"{scheme}:")
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnreachable):
        look(f"{scheme}://{tmp_path}/file/store")


@pytest.mark.parametrize("url", ["qdrant://127.0.0.1:1", "postgresql://127.0.0.1:1/d"])
def test_a_server_that_is_down_is_said(url: str) -> None:
    require_engine(url)
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1"):
        look(url)


@pytest.mark.slow
def test_no_schema_is_made(postgres: PostgresServer) -> None:
    import psycopg

    url = postgres.new_database()
    assert look(url) == ()
    with psycopg.connect(url) as connection:
        query = "SELECT 1 FROM pg_namespace WHERE nspname = 'patchshot'"
        assert connection.execute(query).fetchone() is None
