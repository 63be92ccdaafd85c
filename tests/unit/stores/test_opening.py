from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ConfigurationError, StoreMismatch, StoreUnreachable
from agent.events import Event, Notice
from agent.stores import opening
from agent.stores.border import without_password
from agent.stores.opening import open_records, open_store


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
