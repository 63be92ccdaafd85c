from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ConfigurationError, StoreMismatch, StoreUnreachable
from agent.events import Event, Notice
from agent.stores import opening
from agent.stores.border import without_password, without_password_of
from agent.stores.opening import check_url, open_records, open_store


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

    monkeypatch.setattr(opening.importlib, "import_module", missing)
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
        "import sys; from agent.stores.opening import open_store\n"
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
