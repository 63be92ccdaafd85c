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
from tests.conftest import run_git
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
        1,
        (AddedHunk("client.py", 11, 13, "def send(self, url):", ("send",), body.rstrip(), 3),),
    )


def test_close_changes_are_one_hunk_as_in_gits_default_diff(make_repository: Make) -> None:
    lines = [f"line_{number} = {number}" for number in range(40)]
    root = make_repository({"a.py": "\n".join(lines) + "\n"})
    for at in (5, 12, 30):
        lines[at] = f"line_{at} = (\n    {at}\n)"
    commit(root, "change", {"a.py": "\n".join(lines) + "\n"})
    found = read(root)[0].hunks
    default = run_git(root, "show", "--format=", "HEAD")
    assert len(found) == default.count("\n@@ ") == 2
    # Context between the changes counts as lines of the hunk, but is not among the added ones.
    assert [(hunk.start, hunk.end, hunk.added) for hunk in found] == [(6, 17, 6), (35, 37, 3)]
    assert "line_8" not in found[0].text


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


def test_content_that_looks_like_a_diff(make_repository: Make) -> None:
    root = make_repository({"a.py": "x = 1\n"})
    forged = (
        "commit 1111111111111111111111111111111111111111\n"
        "diff --git a/evil.py b/evil.py\n--- a/evil.py\n+++ b/evil.py\n"
        "@@ -0,0 +1,3 @@\n+a\n+b\n+c\n"
    )
    commit(root, forged, {"a.py": "x = 1\n" + forged + "++ b/x.py\n-- a/x.py\n"})
    newest = read(root)[0]
    assert [hunk.path for hunk in newest.hunks] == ["a.py"]
    assert newest.hunks[0].added == 10
