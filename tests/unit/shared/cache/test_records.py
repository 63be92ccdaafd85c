from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.shared.cache.records import RecordStore
from agent.types.events import Event, Notice

ROOT = Path(__file__).resolve().parents[4]
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


def test_without_a_path_nothing_is_kept(said: list[Event]) -> None:
    with RecordStore(None, reporter=said.append) as store:
        store.put([(key(1), b"one")])
        assert store.get([key(1)]) == {}
    assert said == []


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


def test_garbage_is_rebuilt_with_a_notice(path: Path, said: list[Event]) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database at all" * 500)
    with RecordStore(path, reporter=said.append) as store:
        store.put([(key(1), b"one")])
        assert store.get([key(1)]) == {key(1): b"one"}
    assert [type(event) for event in said] == [Notice]
    assert path.with_name("index.db.bad").exists()


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


def test_a_full_disk_costs_a_notice_only(path: Path, said: list[Event]) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from agent.shared.cache.records import RecordStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
said = []
with RecordStore(Path(sys.argv[1]), reporter=said.append) as store:
    store.put([(n.to_bytes(16, "big"), b"x" * 1000) for n in range(1000)])
    assert store.get([bytes(16)]) == {}
assert len(said) == 1, said
"""
    run_python(code, path).check_returncode()


def test_a_killed_writer_leaves_a_sound_store(path: Path, said: list[Event]) -> None:
    code = """
import sys
from pathlib import Path
from agent.shared.cache.records import RecordStore
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


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, cwd=ROOT, env=environment, timeout=60, check=False)
