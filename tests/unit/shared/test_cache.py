from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.shared.cache import DamagedFile, ForeignFile, RecordStore, SqliteFile, SqliteFormat
from agent.types.events import Event, Notice

ROOT = Path(__file__).resolve().parents[3]
DAY = 86_400.0


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def at(day: int) -> Callable[[], float]:
    return lambda: day * DAY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "index.db"


@pytest.fixture
def said() -> list[Event]:
    return []


def test_records_outlive_the_store(path: Path, said: list[Event]) -> None:
    with RecordStore(path, reporter=said.append) as store:
        store.put([(key(1), b"one"), (key(2), b"two")])
    with RecordStore(path, reporter=said.append) as store:
        assert store.get([key(2), key(3), key(1)]) == {key(1): b"one", key(2): b"two"}
    assert said == []


def test_only_the_user_can_read_it_whatever_the_umask_is(path: Path) -> None:
    before = os.umask(0)
    try:
        with RecordStore(path, reporter=pytest.fail) as store:
            store.put([(key(1), b"one")])
            files = [path.parent, *path.parent.iterdir()]
            modes = {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in files}
    finally:
        os.umask(before)
    assert (len(files), modes) == (4, {0})  # the folder, the file, its log and its index


def test_least_recently_used_goes_first(path: Path, said: list[Event]) -> None:
    limit = 1_000
    with RecordStore(path, reporter=said.append, limit=limit, clock=at(1)) as store:
        store.put([(key(n), b"x" * 100) for n in range(10)])
    with RecordStore(path, reporter=said.append, limit=limit, clock=at(2)) as store:
        assert len(store.get([key(0), key(1)])) == 2
    with RecordStore(path, reporter=said.append, limit=limit, clock=at(3)) as store:
        store.put([(key(n), b"y" * 100) for n in range(10, 14)])
    with RecordStore(path, reporter=said.append, limit=limit, clock=at(3)) as store:
        kept = {int.from_bytes(k, "big") for k in store.get([key(n) for n in range(14)])}
    assert kept == {0, 1, 8, 9, 10, 11, 12, 13}


def test_damage_inside_is_survived(path: Path, said: list[Event]) -> None:
    with RecordStore(path, reporter=said.append) as store:
        store.put([(key(n), os.urandom(3_000)) for n in range(200)])
    data = bytearray(path.read_bytes())
    data[4096 : len(data) - 4096] = b"\xaa" * (len(data) - 8192)
    path.write_bytes(bytes(data))
    with RecordStore(path, reporter=said.append) as store:
        store.get([key(n) for n in range(200)])
        store.put([(key(1), b"one")])
        assert store.get([key(1)]) == {key(1): b"one"}
    assert len(said) == 1


@pytest.mark.parametrize("obstacle", ["file in the way", "folder in the way"])
def test_an_unusable_place_costs_a_notice_only(
    path: Path, said: list[Event], obstacle: str
) -> None:
    if obstacle == "file in the way":
        path.parent.write_text("a file")
    else:
        path.mkdir(parents=True)
    with RecordStore(path, reporter=said.append) as store:
        store.put([(key(1), b"one")])
        assert store.get([key(1)]) == {}
    assert [type(event) for event in said] == [Notice]


def test_a_killed_writer_leaves_a_sound_store(path: Path, said: list[Event]) -> None:
    code = """
import sys
from pathlib import Path
from agent.shared.cache import RecordStore
with RecordStore(Path(sys.argv[1]), reporter=print) as store:
    for n in range(1_000_000):
        store.put([(n.to_bytes(16, "big"), b"%d" % n * 500)])
"""
    process = start_python(code, path)
    deadline = time.monotonic() + 30
    wal = path.with_name("index.db-wal")
    while not (wal.exists() and wal.stat().st_size > 200_000):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with RecordStore(path, reporter=said.append) as store:
        found = store.get([key(n) for n in range(50)])
        assert found == {key(n): b"%d" % n * 500 for n in range(len(found))}
        assert found
        store.put([(key(10**7), b"more")])
        assert store.get([key(10**7)]) == {key(10**7): b"more"}
    assert said == []


def start_python(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


# ---- files

FORMAT = SqliteFormat("test cache", 0x50530001, 3, "CREATE TABLE note (text TEXT);")


def write(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO note VALUES ('kept')")


def read(connection: sqlite3.Connection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM note")]


def make_file(path: Path, file_format: SqliteFormat = FORMAT) -> None:
    file = SqliteFile(path, file_format, lambda _: None)
    file.run(write, writing=True)
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
