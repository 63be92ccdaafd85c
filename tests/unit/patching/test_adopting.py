"""Files that a command wrote, by the rules for edits."""

from __future__ import annotations

from agent.patching import adopt_files
from tests.support.fakes import MemorySnapshot

FILES = {"pkg/a.py": "A = 1\n", "pkg/b.py": "B = 1\n", ".gitignore": "build/\n", ".env": "K=v\n"}


def test_text_files_are_taken_over_byte_for_byte() -> None:
    data = b"A = 2\r\n...\n"
    written = {"pkg/a.py": data, "pkg/b.py": None, "new.txt": b""}
    adopted = adopt_files(written, MemorySnapshot(FILES))
    assert {change.path: change.after for change in adopted.patch.changes} == {
        "new.txt": b"",
        "pkg/a.py": data,
        "pkg/b.py": None,
    }
    assert adopted.refused == {}


def test_each_other_file_is_refused_with_its_reason() -> None:
    adopted = adopt_files(
        {
            ".env": b"K=w\n",
            ".git/config": b"x",
            ".github/workflows/ci.yml": b"x",
            "build/lib.py": b"x",
            ".pytest_cache/README.md": b"x",
            "../out": b"x",
            "a\nb": b"x",
            "image.png": b"\x89PNG\0",
            "sitecustomize.py": b"x",
            "pkg/a.py": b"A = 3\n",
            "gone.py": None,
        },
        MemorySnapshot(FILES),
    )
    assert [change.path for change in adopted.patch.changes] == ["pkg/a.py"]
    assert len(adopted.refused) == 10
    assert "git ignores" in adopted.refused["build/lib.py"]
    assert "hidden" in adopted.refused[".pytest_cache/README.md"]


def test_unchanged_content_is_neither_taken_nor_refused() -> None:
    adopted = adopt_files({"pkg/a.py": b"A = 1\n"}, MemorySnapshot(FILES))
    assert (adopted.patch.changes, adopted.refused) == ((), {})


def test_a_key_is_not_taken_over() -> None:
    key = b"T = 'ghp_" + b"a1B2" * 9 + b"'\n"
    adopted = adopt_files({"pkg/a.py": key, "pkg/b.py": b"B = 2\n"}, MemorySnapshot(FILES))
    assert [change.path for change in adopted.patch.changes] == ["pkg/b.py"]
    assert "looks like a secret" in adopted.refused["pkg/a.py"]
