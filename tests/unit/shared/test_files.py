"""Files are replaced atomically, appended by whole lines, and locked by one process."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.shared.files import AppendFile, locked, parse_toml, replace_file
from tests.support.full_disk import full_at


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\n" + b"x" * 200_000)
    file = AppendFile(path)
    file.append(b"two\n")
    file.close()
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_line_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = AppendFile(path)
    file.append(b"first\n")
    with full_at(10), pytest.raises(OSError):
        file.append(b"second, too long\n")
    file.append(b"third\n")
    file.close()
    assert path.read_bytes() == b"first\nthird\n"


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "f"
    replace_file(path, [b"old"])
    with full_at(10), pytest.raises(OSError):
        replace_file(path, [b"new"] * 100)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path):
        expected = r"another run uses this folder \(process \d+"
        with pytest.raises(ConfigurationError, match=expected), locked(path):
            pass
    with locked(path):
        pass


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (".".join("a" * 16_000) + " = 1", "a key of more than 100 parts"),
        ("[" + ".".join("a" * 16_000) + "]", "a key of more than 100 parts"),
        ("a = " + "[" * 50_000, "brackets are nested too deeply"),
        ("a = ", "Invalid value"),
        ("\udcff = 1", "can't decode"),
    ],
)
def test_toml_that_would_take_much_memory_is_refused(text: str, reason: str) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match=reason):
        parse_toml(text.encode("utf-8", "surrogateescape"))
    assert tracemalloc.get_traced_memory()[1] < 30_000_000
    tracemalloc.stop()


def test_toml_with_many_dots_in_texts_is_read() -> None:
    dots = "." * 500
    assert parse_toml(f'a.b = "{dots}"\n'.encode()) == {"a": {"b": dots}}
