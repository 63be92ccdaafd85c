from __future__ import annotations

import pytest

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
"""


def test_lines_are_numbered_on_both_sides() -> None:
    cart, _ = read_diff(DIFF)
    (hunk,) = cart.hunks
    assert (cart.line, cart.old, cart.new, cart.old_mode) == (
        2, "shop/cart.py", "shop/cart.py", "100644",
    )  # fmt: skip
    assert (hunk.old, hunk.new, hunk.line, hunk.header) == (
        3, 3, 6, b"@@ -3,3 +3,3 @@ def total():",
    )  # fmt: skip
    assert hunk.lines == (
        DiffLine(" ", b"one\n", 3, 3),
        DiffLine("-", b"two\n", 4, None),
        DiffLine("+", b"TWO\n", None, 4),
        DiffLine(" ", b"three", 5, 5),
    )
    assert hunk.before == (b"one\n", b"two\n", b"three")
    assert hunk.after == (b"one\n", b"TWO\n", b"three")
    assert hunk.ends_with_context


def test_lines_outside_of_hunks_are_kept_as_text() -> None:
    cart, tea = read_diff(DIFF + b"Words after the diff.\n")
    assert cart.text == [
        b"Words around the diff.",
        b"diff --git a/shop/cart.py b/shop/cart.py",
        b"index 1234567..89abcde 100644",
    ]
    assert (tea.old, tea.new, tea.renames, tea.kept) == ("café", "tea", True, False)
    assert tea.text[-1] == b"Words after the diff."


def test_a_binary_patch_is_handed_on_as_lines() -> None:
    (file,) = read_diff(
        b"diff --git a/x.bin b/x.bin\nindex 1..2 100644\nGIT binary patch\nliteral 3\nKc$_3O00961\n"
    )
    assert (file.binary, file.binary_line) == ((b"literal 3", b"Kc$_3O00961"), 4)


@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        (b"no diff at all\n", "no valid patches in the input: not a unified diff"),
        (b"@@ -1 +1 @@\n-a\n+b\n", "line 1: a hunk without a file header"),
        (b"--- a/f\n+++ b/f\nwords\n", "line 2: only a file header, no hunk follows"),
        (
            b"--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n-a\n+b\n",
            "corrupt patch at line 5: the hunk is cut off",
        ),
        (
            b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n-b\n",
            "corrupt patch at line 5: not what the hunk's header says",
        ),
        (
            b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n a\n",
            "corrupt patch at line 3: a hunk that changes nothing",
        ),
    ],
)
def test_what_git_refuses_is_refused_with_its_line(diff: bytes, reason: str) -> None:
    with pytest.raises(DiffError) as caught:
        read_diff(diff)
    assert str(caught.value) == reason


def test_a_lenient_reader_takes_what_other_tools_make_of_a_diff() -> None:
    (file,) = read_diff(
        b"--- pkg/f\n+++ pkg/f\n@@ -1 +1 @@\n a\nwords\n@@ -5,3 +5,3 @@\n\r\n-x\n+y\n", lenient=True
    )
    assert (file.old, file.new, [len(hunk.lines) for hunk in file.hunks]) == (
        "pkg/f",
        "pkg/f",
        [1, 3],
    )
    assert file.hunks[1].lines[0] == DiffLine(" ", b"\r\n", 5, 5)
    (words,) = read_diff(b"no diff at all\n", lenient=True)
    assert (words.old, words.new, words.text) == (None, None, [b"no diff at all"])
    with pytest.raises(DiffError):
        read_diff(b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n-b\n", lenient=True)
