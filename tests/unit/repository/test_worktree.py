from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.repository.worktree import DiskFile, Kind, blob_id, read_files

NOBODY = 65534


def test_blob_ids_are_gits() -> None:
    assert blob_id(b"x\n") == "587be6b4c3f93f93c489c0111bba5596147a26cb"


def test_what_stands_at_a_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_bytes(b"1\r\n2\n")
    (tmp_path / "a" / "f").chmod(0o755)
    (tmp_path / "l").symlink_to("a")
    os.mkfifo(tmp_path / "p")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.close()
    paths = [b"a/f", b"a", b"l", b"l/f", b"p", b"s", b"gone", b"gone/f", b"a/f/x", b"\xff"]
    crlf = DiskFile(Kind.FILE, b"1\r\n2\n", 5, True, blob_id(b"1\r\n2\n"), blob_id(b"1\n2\n"))
    assert read_files(tmp_path, paths, limit=10) == {
        b"a/f": crlf,
        b"a": DiskFile(Kind.DIRECTORY),
        b"l": DiskFile(Kind.SYMLINK, blob=blob_id(b"a"), blob_lf=blob_id(b"a")),
        b"l/f": DiskFile(Kind.BEHIND_SYMLINK),
        b"p": DiskFile(Kind.SPECIAL),
        b"s": DiskFile(Kind.SPECIAL),
        b"gone": DiskFile(Kind.ABSENT),
        b"gone/f": DiskFile(Kind.ABSENT),
        b"a/f/x": DiskFile(Kind.ABSENT),
        b"\xff": DiskFile(Kind.ABSENT),
    }


def test_a_sparse_file_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.truncate(2**40)
    [found] = read_files(tmp_path, [b"f"], limit=29, hashed={b"f"}).values()
    assert found == DiskFile(Kind.FILE, None, 2**40)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_files_and_folders_without_permission_are_unreadable(open_folder: Path) -> None:
    (open_folder / "secret").write_text("s")
    (open_folder / "secret").chmod(0)
    (open_folder / "closed").mkdir(mode=0)
    root = os.geteuid() == 0
    if root:  # who may read everything
        os.seteuid(NOBODY)
    try:
        found = read_files(open_folder, [b"secret", b"closed/f"], limit=10)
    finally:
        if root:
            os.seteuid(0)
        (open_folder / "closed").chmod(0o700)
    assert found == {b"secret": DiskFile(Kind.UNREADABLE), b"closed/f": DiskFile(Kind.UNREADABLE)}
