from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.files import read_small_file


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    assert read_small_file(tmp_path / "a", 10) == b"x" * 10


def test_a_larger_file_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match=r"larger than 1,048,576 bytes"):
        read_small_file(tmp_path / "a")


def test_what_is_no_regular_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "zero", "folder", "pipe", "absent", "file/below"):
        assert read_small_file(tmp_path / name) is None, name
    assert read_small_file(Path("/dev/zero")) is None
