from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.repository.unified_diff import DiffError, DiffLine, read_diff

DIFF = b"""\
Words around the diff.
diff --git a/shop/cart.py b/shop/cart.py
index 1234567..89abcde 100644
--- a/shop/cart.py
+++ b/shop/cart.py
@@ -3,3 +3,3 @@ def total():
 one
-two
+TWO
 three
\\ No newline at end of file
diff --git "a/caf\\303\\251" b/tea
similarity index 100%
rename from "caf\\303\\251"
rename to tea
diff --git a/x.bin b/y.bin
index 1..2
GIT binary patch
literal 3
Kc$_3O00961
diff --git a/x y b/x y
old mode 100644
new mode 100755
diff --git a/new b/new
new file mode 100644
index 0000000..1234567
diff --git a/old b/old
deleted file mode 100644
index 1234567..0000000
--- lib/plain.py\t2024-01-01
+++ lib/plain.py\t2024-01-02
@@ -1 +1 @@
-a
+b
Words after the diff.
"""


def test_files_have_names_and_modes() -> None:
    assert [(f.old, f.new, f.old_mode, f.new_mode) for f in read_diff(DIFF)] == [
        ("shop/cart.py", "shop/cart.py", "100644", None),
        ("café", "tea", None, None),
        (None, None, None, None),
        ("x y", "x y", "100644", "100755"),
        (None, "new", None, "100644"),
        ("lib/plain.py", "lib/plain.py", "100644", None),
    ]
    assert [f.new for f in read_diff(DIFF, any_folder=True)][-1] == "plain.py"


@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        (b"@@ -1 +1 @@\n-a\n+b\n", "line 1: a hunk without a file header"),
        (
            b"--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n-a\n+b\n",
            "corrupt patch at line 5: the hunk is cut off",
        ),
        (
            b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n-b\n",
            "corrupt patch at line 5: not what the hunk's header says",
        ),
    ],
)
def test_wrong_counts_are_refused_with_their_line(diff: bytes, reason: str) -> None:
    with pytest.raises(DiffError) as caught:
        read_diff(diff)
    assert str(caught.value) == reason


def test_what_other_tools_make_of_a_diff_is_read() -> None:
    (file,) = read_diff(
        b"--- pkg/f\n+++ pkg/f\n@@ -1 +1 @@\n a\nwords\n@@ -5,3 +5,3 @@\n\r\n-x\n+y\n"
    )
    assert (file.old, file.new, [len(hunk.lines) for hunk in file.hunks]) == (
        "pkg/f",
        "pkg/f",
        [1, 3],
    )
    assert file.hunks[1].lines[0] == DiffLine(" ", b"\r\n", 5, 5)
    assert read_diff(b"no diff at all\n") == ()


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    head = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,3 @@\n"
    for diff in (data, head + data):
        with suppress(DiffError):
            read_diff(diff)
