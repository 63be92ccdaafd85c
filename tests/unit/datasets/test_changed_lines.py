from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.datasets import Insertion, PatchedFile, parse_patch

PATCH = """\
From somebody, with a text before
diff --git a/pkg/mod.py b/pkg/mod.py
index 123..456 100644
--- a/pkg/mod.py
+++ b/pkg/mod.py
@@ -1,5 +1,6 @@ class A:
 one
-two
+TWO
 three
+    between
 four
 five
@@ -20,2 +21 @@
--- this line begins like a file header
 kept
diff --git a/new.py b/new.py
new file mode 100644
--- /dev/null
+++ b/new.py
@@ -0,0 +1 @@
+hello
diff --git a/old.py b/gone.py
similarity index 100%
rename from old.py
rename to gone.py
--- a/top.py\t2024-01-01 00:00:00
+++ b/top.py
@@ -0,0 +1,2 @@

+\tx
\\ No newline at end of file
"""


def test_a_patch_of_many_files() -> None:
    # The second hunk of `top.py` lost its blank: `@@ -0,0` can hold no context.
    good = PATCH.replace("@@ -0,0 +1,2 @@\n\n+\tx", "@@ -0,0 +1,2 @@\n+\n+\tx")
    assert parse_patch(good) == (
        PatchedFile("pkg/mod.py", (2, 20), (Insertion(3, 4),)),
        PatchedFile("top.py", (), (Insertion(0, 8),)),
    )
    with pytest.raises(ValueError, match="header"):
        parse_patch(PATCH)


@pytest.mark.parametrize(
    ("patch", "file"),
    [
        # A blank line of context, or blank lines at the end, may be lost.
        ("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n\n-a\n+b\n c\n", PatchedFile("f", (2,), ())),
        ("--- a/f\n+++ b/f\n@@ -1,900 +1,900 @@\n-a\n+b", PatchedFile("f", (1,), ())),
        # Blank lines that are replaced make an insertion.
        (
            "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-\n+  b\n c\n",
            PatchedFile("f", (2,), (Insertion(2, 2),)),
        ),
        (
            '--- "a/f\\303\\251 \\"x\\".py"\n+++ "b/y"\n@@ -1 +1 @@\n-a\n+b\n',
            PatchedFile('f\u00e9 "x".py', (1,), ()),
        ),
    ],
)
def test_unusual_patches(patch: str, file: PatchedFile) -> None:
    assert parse_patch(patch) == (file,)


@pytest.mark.parametrize(
    "patch",
    [
        "@@ -1 +1 @@\n-a\n+b\n",
        "--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n-a\n+b\n",
        "--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n-a\n+b\n",
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n-b\n+b\n",
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\nwhat\n",
    ],
)
def test_hunks_that_are_not_what_they_say(patch: str) -> None:
    with pytest.raises(ValueError):
        parse_patch(patch)


@given(st.text(alphabet='+- @\\a1,\n/b"', max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_patch(f"--- a/f\n+++ b/f\n{text}")
    except ValueError:
        pass


LINES = st.lists(st.sampled_from(["a", "  b", "", "-- c", "++ d", "@@ -1 +1 @@"]), max_size=12)


@given(LINES, LINES, st.integers(0, 3))
def test_removed_lines_and_insertions_are_those_of_the_diff(
    old: list[str], new: list[str], context: int
) -> None:
    diff = "\n".join(difflib.unified_diff(old, new, "a/f", "b/f", n=context, lineterm=""))
    removed: list[int] = []
    inserted: list[Insertion] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if tag in ("delete", "replace"):
            removed.extend(range(i1 + 1, i2 + 1))
        if tag == "insert" or (tag == "replace" and not any(line.strip() for line in old[i1:i2])):
            first = next((line for line in new[j1:j2] if line.strip()), None)
            indent = None if first is None else len(first) - len(first.lstrip())
            inserted.append(Insertion(i2, indent))
    expected = (PatchedFile("f", tuple(removed), tuple(inserted)),)
    assert parse_patch(diff) == (expected if removed or inserted else ())
