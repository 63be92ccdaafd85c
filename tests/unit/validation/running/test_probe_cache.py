"""What interpreters said of themselves: when it comes back, and when it is asked again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.validation.running.kept_files import KeptFiles
from agent.validation.running.probe_cache import ProbeCache, probe_key

NOW = 1_800_000_000.0


@pytest.fixture
def cache(tmp_path: Path) -> ProbeCache:
    return ProbeCache(KeptFiles(tmp_path / "kept"))


def written(tmp_path: Path, key: str, data: bytes) -> None:
    file = tmp_path / "kept" / f"{key}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    os.utime(file, (NOW, NOW))


def test_an_answer_comes_back(cache: ProbeCache, tmp_path: Path) -> None:
    cache.put("k", "3.12.1", "8.3.0")
    os.utime(tmp_path / "kept" / "k.json", (NOW, NOW))
    assert cache.get("k", NOW) == ("3.12.1", "8.3.0")
    assert cache.get("other", NOW) is None


def test_a_missing_pytest_is_asked_for_again(cache: ProbeCache, tmp_path: Path) -> None:
    cache.put("k", "3.12.1", None)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        json.dumps({"key": "other", "version": "3.12.1", "pytest": "8.3.0"}).encode(),
        json.dumps({"key": "k", "version": 3, "pytest": "8.3.0"}).encode(),
        json.dumps({"key": "k", "version": "3.12.1", "pytest": None}).encode(),
        json.dumps({"key": "k", "version": "3.12.1", "pytest": "8", "more": 1}).encode(),
    ],
)
def test_what_we_did_not_write_is_as_good_as_absent(
    cache: ProbeCache, tmp_path: Path, data: bytes
) -> None:
    written(tmp_path, "k", b'{"key": "k", "version": "3.12.1", "pytest": "8.3.0"}')
    assert cache.get("k", NOW) is not None
    written(tmp_path, "k", data)
    assert cache.get("k", NOW) is None


def test_another_interpreter_or_another_environment_is_another_question(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    python.parent.mkdir()
    python.write_text("one")
    packages.mkdir(parents=True)

    def key(backend: str = "bwrap", shown: tuple[Path, ...] = ()) -> str:
        return probe_key(python, ("python", "-c", ""), shown, backend)

    keys = [key(), key("container"), key(shown=(tmp_path,))]
    assert key() == keys[0]
    (packages / "pytest-9.0.dist-info").mkdir()
    keys.append(key())
    python.write_text("another")
    keys.append(key())
    python.unlink()
    keys.append(key())
    assert len(set(keys)) == len(keys)
