from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from agent.repository.git import open_repository
from agent.retrieval.history.hunks import (
    MIN_ADDED,
    AddedHunk,
    CommitHunks,
    read_hunks,
)
from tests.support.histories import CLIENT
from tests.support.histories import write_and_commit as commit

Make = Callable[[Mapping[str, str | bytes]], Path]

THREE = "one = 1\ntwo = 2\nthree = 3\n"


def read(root: Path, *patterns: str, revision: str = "HEAD") -> list[CommitHunks]:
    with open_repository(root) as git:
        commits = git.ancestors(git.resolve(revision), 200)
        return [one for batch in read_hunks(git, commits, patterns) for one in batch]


def test_a_hunk_is_where_it_stands_after_the_commit(make_repository: Make) -> None:
    root = make_repository({"client.py": CLIENT})
    body = "        for _ in range(3):\n            self.try_it(url)\n        url = url.strip()\n"
    changed = CLIENT.replace("        return url\n", body + "        return url\n")
    newest = commit(
        root, "Try again\n\nSigned-off-by: A <a@example.invalid>", {"client.py": changed}
    )
    assert read(root)[0] == CommitHunks(
        newest,
        "Try again",
        (AddedHunk("client.py", 11, 13, "def send(self, url):", ("send",), body.rstrip(), 3),),
    )


def test_small_hunks_and_deletions_are_left_out(make_repository: Make) -> None:
    root = make_repository({"a.py": THREE * 9, "b.py": THREE, "c.py": THREE, "d.py": THREE})
    commit(
        root,
        "change",
        {
            "a.py": THREE * 3,
            "b.py": None,
            "c.py": THREE + "x = 1\ny = 2\n",
            "d.py": THREE + "x = 1\ny = 2\nz = 3\n",
        },
    )
    assert [(hunk.path, hunk.added) for hunk in read(root)[0].hunks] == [("d.py", MIN_ADDED)]


def test_left_out_by_name_and_taken_in_again(make_repository: Make) -> None:
    paths = (
        "app.py", "poetry.lock", "web/app.min.js", "vendor/x/a.py", "api_pb2.py", "notes.ipynb",
        "docs/guide.md",
    )  # fmt: skip
    root = make_repository({"x.txt": "x\n"})
    commit(root, "add", dict.fromkeys(paths, THREE))

    def found(*patterns: str) -> list[str]:
        return [hunk.path for hunk in read(root, *patterns)[0].hunks]

    assert found() == ["app.py", "docs/guide.md"]
    assert found("docs/*") == ["app.py"]
    assert found("*", "!*.py") == ["api_pb2.py", "app.py", "vendor/x/a.py"]
    assert found("docs/") == ["app.py"]
    assert found("!poetry.lock", "*.md", "!vendor/*", "vendor/x/a.*") == ["app.py", "poetry.lock"]
