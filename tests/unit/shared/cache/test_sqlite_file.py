from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agent.shared.cache.sqlite_file import (
    CacheFile,
    DamagedFile,
    ForeignFile,
    SqliteFile,
    SqliteFormat,
)
from agent.types.events import Event

FORMAT = SqliteFormat("test cache", 0x50530001, 3, "CREATE TABLE note (text TEXT);")


def write(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO note VALUES ('kept')")


def read(connection: sqlite3.Connection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM note")]


def make_file(path: Path, file_format: SqliteFormat = FORMAT) -> None:
    file = SqliteFile(path, file_format, lambda _: None)
    file.run(write, writing=True)
    file.close()


def test_a_failed_action_writes_nothing(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "notes", FORMAT, pytest.fail)

    def fail(connection: sqlite3.Connection) -> None:
        write(connection)
        raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        file.run(fail, writing=True)
    assert file.run(read) == []
    file.close()


@pytest.mark.parametrize("content", [b"some text " * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_or_foreign_file_is_set_aside_whole(tmp_path: Path, content: bytes) -> None:
    path, said = tmp_path / "notes", list[str]()
    path.write_bytes(content)
    file = SqliteFile(path, FORMAT, said.append, replace_foreign=True)
    assert file.run(read) == []
    file.close()
    assert (tmp_path / "notes.bad").read_bytes() == content
    assert len(said) == 1


def test_the_log_goes_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("my shopping list")
    (tmp_path / "notes-wal").write_bytes(b"the log")
    file = SqliteFile(path, FORMAT, lambda _: None, replace_foreign=True)
    file.run(read)
    file.close()
    assert (tmp_path / "notes.bad-wal").read_bytes() == b"the log"


def test_a_file_of_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    make_file(path, SqliteFormat("test cache", FORMAT.application_id, 4, FORMAT.schema))
    before = path.read_bytes()
    file = SqliteFile(path, FORMAT, pytest.fail)
    with pytest.raises(ForeignFile) as raised:
        file.run(read)
    assert (raised.value.application_id, raised.value.version) == (FORMAT.application_id, 4)
    assert path.read_bytes() == before


def test_a_file_that_another_process_replaced_is_not_set_aside_again(tmp_path: Path) -> None:
    path, said = tmp_path / "notes", list[str]()
    make_file(path)
    file = SqliteFile(path, FORMAT, said.append)

    def replaced(connection: sqlite3.Connection) -> list[str]:
        if not (tmp_path / "gone").exists():
            path.rename(tmp_path / "gone")
            make_file(path)
            raise DamagedFile
        return read(connection)

    assert file.run(replaced) == ["kept"]
    assert said == []
    file.close()


def test_a_cache_that_cannot_be_used_is_reported_once(tmp_path: Path) -> None:
    said: list[Event] = []
    (tmp_path / "notes").mkdir()
    file = CacheFile(tmp_path / "notes", FORMAT, said.append)
    assert file.run(read, ["nothing"]) == ["nothing"]
    assert file.run(read, ["nothing"]) == ["nothing"]
    file.close()
    assert len(said) == 1
    assert "going on without it" in str(said[0])
