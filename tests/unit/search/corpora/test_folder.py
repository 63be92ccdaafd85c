from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import RepositoryError
from agent.search.corpora.folder import read_folder


def test_a_plain_folder_is_read_without_what_tools_made(tmp_path: Path) -> None:
    for path in ("a/b.py", "README.md", "node_modules/x.js", ".hidden/y.py", "a/__pycache__/z.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x = 1\r\n")
    (tmp_path / "data.bin").write_bytes(b"\0\1")
    (tmp_path / "link.py").symlink_to(tmp_path / "a" / "b.py")
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    found = read_folder(tmp_path)
    assert list(found.files) == ["README.md", "a/b.py"]
    assert found.text("a/b.py") == "x = 1\n"
    assert found.read("a/b.py") == b"x = 1\r\n"
    assert [(one.path, one.reason) for one in found.skipped] == [("data.bin", "binary")]
    assert found.exists("data.bin")
    assert found.overlay() == {}
    assert "no git repository" in found.notes[0]


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="no usable text file"):
        read_folder(tmp_path)
