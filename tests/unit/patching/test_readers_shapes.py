"""Replies in each shape that models write, and texts that only resemble one."""

from __future__ import annotations

import json

import pytest

from agent.patching import parse_reply
from agent.types import (
    CreateFile,
    DeleteFile,
    Edit,
    ParseFailure,
    PatchProposal,
    RenameFile,
    SearchReplace,
)

OLD, NEW = "    return a - b\n", "    return a + b\n"
EDIT = SearchReplace("calc.py", OLD, NEW)
PATCH = f"*** Begin Patch\n*** Update File: calc.py\n@@\n-{OLD}+{NEW}*** End Patch"
HUNK = " def add(a, b):\n-    return a - b\n+    return a + b\n"
WHOLE = SearchReplace("calc.py", f"def add(a, b):\n{OLD}", f"def add(a, b):\n{NEW}")


def hunk(line: int | None = None) -> SearchReplace:
    return SearchReplace(WHOLE.path, WHOLE.search, WHOLE.replace, line)


def read(text: str, reader: str) -> tuple[Edit, ...]:
    outcome = parse_reply(text)
    assert isinstance(outcome, PatchProposal), outcome
    assert outcome.reader == reader
    return outcome.edits


def failure(text: str, finish_reason: str = "stop") -> ParseFailure:
    outcome = parse_reply(text, finish_reason=finish_reason)
    assert isinstance(outcome, ParseFailure), outcome
    assert "\n" not in outcome.reason
    return outcome


def test_an_example_of_data_is_no_edit() -> None:
    text = 'The server answers {"path": "a.py", "content": "x"} to that.'
    assert failure(text).kind in ("malformed", "schema")


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n", 1),
        ("--- a/calc.py\n+++ b/calc.py\n@@ -41,9 +3,7 @@ class Sum:\n", 41),
        ("--- calc.py\n+++ calc.py\n@@ ... @@\n", None),
        ("--- calc.py\n+++ calc.py\n@@\n", None),
        ("--- calc.py\n+++ calc.py\n@@ def add(a, b): @@\n", None),
        ("--- calc.py\n+++ calc.py\n", None),
        ("--- calc.py\t2024-01-01 00:00:00\n+++ calc.py\t2024-01-01 00:00:01\n@@ -1 +1 @@\n", 1),
        ("--- calc.py\n+++ patched_calc.py\n@@ -1,2 +1,2 @@\n", 1),
        ("--- calc.py.orig\n+++ calc.py\n@@ -1,2 +1,2 @@\n", 1),
        (
            "diff --git a/calc.py b/calc.py\nindex 12ab34c..56de78f 100644\n"
            "--- a/calc.py\n+++ b/calc.py\n"
            "@@ -1,2 +1,2 @@\n",
            1,
        ),
    ],
)
def test_heads_of_diffs(head: str, line: int | None) -> None:
    for text in (f"```diff\n{head}{HUNK}```\n", f"Here:\n\n```diff\n{head}{HUNK}\n```\nDone."):
        assert read(text, "unified-diff") == (hunk(line),)
        assert read(text.replace("\n", "\r\n"), "unified-diff") == (hunk(line),)


def test_a_diff_without_a_fence_and_prose_after_it() -> None:
    text = f"--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n{HUNK}\n- This adds now.\n"
    assert read(text, "unified-diff") == (hunk(1),)


def test_the_file_is_named_above_the_fence() -> None:
    assert read(f"### calc.py\n\n```diff\n@@ -1,2 +1,2 @@\n{HUNK}```\n", "unified-diff") == (
        hunk(1),
    )


def test_new_deleted_and_renamed_files() -> None:
    text = (
        "diff --git a/n.py b/n.py\nnew file mode 100644\n"
        "--- /dev/null\n+++ b/n.py\n@@ -0,0 +1,2 @@\n"
        "+x = 1\n+y = 2\n\\ No newline at end of file\n"
        "diff --git a/o.py b/o.py\ndeleted file mode 100644\n"
        "--- a/o.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n"
        "diff --git a/p.py b/q.py\nsimilarity index 90%\nrename from p.py\nrename to q.py\n"
        "--- a/p.py\n+++ b/q.py\n@@ -3 +3 @@\n-a\n+b\n"
    )
    assert read(text, "unified-diff") == (
        CreateFile("n.py", "x = 1\ny = 2"),
        DeleteFile("o.py"),
        SearchReplace("p.py", "a\n", "b\n", 3),
        RenameFile("p.py", "q.py"),
    )


def test_forgiven_context_lines() -> None:
    head = "```diff\n--- a/a.py\n+++ b/a.py\n@@ -1,9 +1,9 @@\n"
    blank = read(f"{head} a\n\n-b\n+c\n\n d\n\n```\n", "unified-diff")
    assert blank == (SearchReplace("a.py", "a\n\nb\n\nd\n", "a\n\nc\n\nd\n", 1),)
    nowhere = read(f"{head}class A:\n    x = 1\n-    y = 2\n+    y = 3\n```\n", "unified-diff")
    wanted = SearchReplace(
        "a.py", "class A:\n    x = 1\n    y = 2\n", "class A:\n    x = 1\n    y = 3\n", 1
    )
    assert nowhere == (wanted,)
    mixed = f"{head}class A:\n    x = 1\n     z = 1\n-    y = 2\n+    y = 3\n```\n"
    assert "lack their leading space" in failure(mixed).reason


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("```diff\n--- a/a.py\n+++ b/a.py\n@@ -1,4 +1,4 @@\n-b\n+c\n", "truncated"),
        ("```diff\n@@ -1 +1 @@\n-b\n+c\n```\n", "malformed"),
        ("```diff\n--- a/a.py\n+++ b/a.py\n@@ -8,7 +8,9 @@\n+c\n```\n", "malformed"),
        ("```diff\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n b\n```\n", "no-edit"),
        (
            "1. x\n  ```diff\n  --- a/a.py\n  +++ b/a.py\n  @@ -1 +1 @@\n  -b\n  +c\n  ```\n",
            "malformed",
        ),
        (
            "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-b\n+c\n\nand\n\n"
            "  --- a/b.py\n  +++ b/b.py\n  @@ -1 +1 @@\n  -b\n  +c\n",
            "malformed",
        ),
        ("diff --git a/a b/a\nold mode 100644\nnew mode 100755\n", "malformed"),
        ("diff --git a/a.png b/a.png\nBinary files differ\n", "malformed"),
    ],
)
def test_diffs_that_cannot_be_read(text: str, kind: str) -> None:
    assert failure(text).kind == kind


def test_an_envelope_with_everything() -> None:
    text = (
        "*** Begin Patch\n*** Update File: a.py\n*** Move to: pkg/a.py\n"
        "@@ class A:\n@@     def f(self):\n"
        " x\n-y\n+z\n*** End of File\n*** Add File: n.py\n+one\n+\n+two\n"
        "*** Delete File: o.py\n*** End Patch\n"
    )
    wanted = (
        SearchReplace("a.py", "x\ny\n", "x\nz\n"),
        RenameFile("a.py", "pkg/a.py"),
        CreateFile("n.py", "one\n\ntwo\n"),
        DeleteFile("o.py"),
    )
    for reply in (
        text,
        f"```\n{text}```",
        f"apply_patch <<'EOF'\n{text}EOF\n",
        f"Done:\n\n{text}\nBye",
    ):
        assert read(reply, "apply-patch") == wanted


def test_an_envelope_whose_end_is_missing() -> None:
    cut = PATCH.removesuffix("*** End Patch")
    assert failure(cut).kind == "truncated"
    assert read(f"```\n{cut}```\n", "apply-patch") == (
        EDIT,
    )  # the fence shows that nothing was cut
    assert failure(f"```\n{cut}```\n", "length").kind == "truncated"


@pytest.mark.parametrize(
    "head",
    [
        *("```python:pkg/n.py\n", "```pkg/n.py\n", "**pkg/n.py**\n```python\n"),
        *("### File: `pkg/n.py`\n\n```python\n", "pkg/n.py\n```\n"),
        "### pkg/n.py (new file)\n```python\n",
    ],
)
def test_whole_files(head: str) -> None:
    text = f"I add a file.\n\n{head}import os\n\nx = os\n```\nDone."
    assert read(text, "whole-files") == (CreateFile("pkg/n.py", "import os\n\nx = os\n", True),)


def test_a_path_in_the_first_comment() -> None:
    text = "```python\n# pkg/n.py\nx = 1\n```"
    assert read(text, "whole-files") == (CreateFile("pkg/n.py", "# pkg/n.py\nx = 1\n", True),)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (
            "a.py\n```python\nx = 1\n# ... rest of the file unchanged ...\n```",
            "malformed",
            "leaves code out",
        ),
        ("a.py\n```python\nx = 1\n# existing code\n```", "malformed", "leaves code out"),
        ("a.js\n```js\nlet x;\n// ...\n```", "malformed", "leaves code out"),
        ("a.py\n```python\n1 | x = 1\n2 | y = 2\n```", "malformed", "numbered"),
        ("a.py\n```python\nx = 1\n", "truncated", "inside a.py"),
        ("README.md\n```md\n# A\n```\nx\n```\nmore\n```\n", "malformed", "README.md ends"),
    ],
)
def test_what_is_no_whole_file(text: str, kind: str, reason: str) -> None:
    outcome = failure(text)
    assert outcome.kind == kind
    assert reason in outcome.reason


def test_edits_of_the_thinking_are_not_taken() -> None:
    draft = json.dumps({"edits": [{"path": "a.py", "search": "draft", "replace": "x"}]})
    final = json.dumps({"edits": [{"path": "a.py", "search": "final", "replace": "x"}]})
    wanted = (SearchReplace("a.py", "final", "x"),)
    assert read(f"<think>{draft}</think>{final}", "json") == wanted
    assert read(f"Perhaps {draft}\n</think>\n{final}", "json") == wanted
    assert failure(f"<think>{draft}").kind == "truncated"


def test_a_shape_inside_another_is_content() -> None:
    inner = f"--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-{OLD}+{NEW}"
    edit = CreateFile("tests/data.patch", inner)
    text = json.dumps({"edits": [{"path": edit.path, "create": inner}]}).replace("\\n", "\n")
    assert read(text, "json-lenient") == (edit,)
    block = f"a.py\n<<<<<<< SEARCH\nx\n=======\n{json.dumps({'edits': []})}\n>>>>>>> REPLACE\n"
    assert read(block, "search-replace") == (SearchReplace("a.py", "x\n", '{"edits": []}\n'),)
