"""A proposal is applied as a whole or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from agent.patching import OverlayFiles, apply_proposal, unified_diff
from agent.patching.edit_session import MAX_WRITTEN
from agent.types import (
    AppliedEdit,
    AppliedPatch,
    ApplyFailure,
    CreateFile,
    DeleteFile,
    Edit,
    FileChange,
    MatchTier,
    PatchProposal,
    ReproductionTest,
    SearchReplace,
    SkippedFile,
)
from tests.support.memory_files import MemoryFiles

FILES = MemoryFiles(
    {
        "pkg/__init__.py": "",
        "pkg/a.py": "x = 1\ny = 2\nz = 3\n",
        "pkg/b.py": "b = 1\n",
        "run.sh": "echo\n",
        "tests/test_a.py": "def test(): ...\n",
    },
    skipped=(
        SkippedFile("logo.png", "binary"),
        SkippedFile("link", "symlink"),
        SkippedFile("vendor", "submodule"),
        SkippedFile("big.json", "too-large"),
    ),
    executable=("run.sh",),
)


def apply(*edits: Edit, files: Any = FILES, **options: Any) -> AppliedPatch | ApplyFailure:
    return apply_proposal(PatchProposal(edits), files, **options)


def applied(*edits: Edit, **options: Any) -> AppliedPatch:
    outcome = apply(*edits, **options)
    assert isinstance(outcome, AppliedPatch), outcome
    return outcome


def failures(*edits: Edit, **options: Any) -> list[tuple[int, str, str]]:
    outcome = apply(*edits, **options)
    assert isinstance(outcome, ApplyFailure), outcome
    return [(failure.index, failure.kind, failure.reason) for failure in outcome.failures]


def kinds(*edits: Edit, **options: Any) -> list[tuple[int, str]]:
    return [(index, kind) for index, kind, _ in failures(*edits, **options)]


def test_applies_every_kind_of_edit() -> None:
    outcome = applied(
        SearchReplace("./pkg/a.py", "y = 2\n", "y = 20\n"),
        CreateFile("pkg/new.py", "n = 1\n"),
        DeleteFile("pkg/b.py"),
    )
    changes = (
        FileChange("pkg/a.py", b"x = 1\ny = 2\nz = 3\n", b"x = 1\ny = 20\nz = 3\n"),
        FileChange("pkg/b.py", b"b = 1\n", None),
        FileChange("pkg/new.py", None, b"n = 1\n"),
    )
    assert outcome == AppliedPatch(
        changes,
        unified_diff(changes),
        (
            AppliedEdit(0, "pkg/a.py", MatchTier.EXACT, 2),
            AppliedEdit(1, "pkg/new.py", MatchTier.CREATED, 1),
            AppliedEdit(2, "pkg/b.py", MatchTier.DELETED, 1),
        ),
    )
    assert b"-y = 2\n+y = 20\n" in outcome.diff


def test_edits_of_one_file_see_each_other_in_order() -> None:
    outcome = applied(
        SearchReplace("pkg/a.py", "x = 1\n", "x = 1\nw = 0\n"),
        SearchReplace("pkg/a.py", "w = 0\ny = 2\n", "w = 5\ny = 2\n"),
    )
    assert outcome.changes[0].after == b"x = 1\nw = 5\ny = 2\nz = 3\n"
    assert [edit.line for edit in outcome.edits] == [2, 2]


def test_a_created_file_can_be_edited_and_a_deleted_one_created() -> None:
    outcome = applied(
        CreateFile("pkg/new.py", "n = 1\n"),
        SearchReplace("pkg/new.py", "1", "2"),
        DeleteFile("pkg/b.py"),
        CreateFile("pkg/b.py", "b = 2\n"),
        DeleteFile("run.sh"),
        CreateFile("run.sh", "echo 1\n"),
    )
    assert outcome.changes == (
        FileChange("pkg/b.py", b"b = 1\n", b"b = 2\n"),
        FileChange("pkg/new.py", None, b"n = 2\n"),
        FileChange("run.sh", b"echo\n", b"echo 1\n", executable=True),
    )


def test_nothing_is_applied_if_one_edit_fails_and_all_failures_are_named() -> None:
    outcome = apply(
        SearchReplace("pkg/a.py", "y = 2", "y = 5"),
        SearchReplace("pkg/a.py", "q = 2", "q = 5"),
        SearchReplace("pkg/aa.py", "x", "y"),
        CreateFile("../evil.py", ""),
        CreateFile("pkg/b.py", "b = 1\n"),
        SearchReplace("pkg/a.py", "=", "!="),
        DeleteFile("gone.py"),
    )
    assert isinstance(outcome, ApplyFailure)
    assert [(f.index, f.path, f.kind) for f in outcome.failures] == [
        (1, "pkg/a.py", "no-match"),
        (2, "pkg/aa.py", "unknown-file"),
        (3, "../evil.py", "refused-path"),
        (4, "pkg/b.py", "exists"),
        (5, "pkg/a.py", "ambiguous"),
        (6, "gone.py", "unknown-file"),
    ]
    assert "did you mean pkg/a.py" in outcome.failures[1].reason
    assert "with this very content" in outcome.failures[3].reason
    assert outcome.failures[0].candidates[0].path == "pkg/a.py"
    assert outcome.reason.count("\n") == 5


@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        (SearchReplace("logo.png", "a", "b"), "not-text"),
        (DeleteFile("logo.png"), "not-text"),
        (CreateFile("logo.png", "x"), "exists"),
        (SearchReplace("link", "a", "b"), "not-text"),
        (DeleteFile("link"), "not-text"),
        (CreateFile("link", "x"), "exists"),
        (CreateFile("link/through.py", "x"), "refused-path"),
        (CreateFile("vendor/x/y.py", "x"), "refused-path"),
        (CreateFile("pkg/a.py/b.py", "x"), "refused-path"),
        (CreateFile("pkg", "x"), "refused-path"),
        (SearchReplace("big.json", "a", "b"), "too-large"),
        (CreateFile("PKG/c.py", "x"), "refused-path"),
        (CreateFile("pkg/A.py", "x"), "refused-path"),
        (CreateFile("Logo.PNG", "x"), "refused-path"),
        (CreateFile("pkg/ａ.py", "x"), "refused-path"),
        (SearchReplace("pkg/A.py", "x = 5", "x"), "unknown-file"),
        (CreateFile("```python", "x"), "refused-path"),
        (CreateFile("tests/conftest.py", "x"), "refused-path"),
        (CreateFile("c.py", "a\0b"), "not-text"),
        (SearchReplace("pkg/a.py", "x", "a\0b"), "not-text"),
        (CreateFile("c.py", "\ud800"), "not-text"),
        (CreateFile("c.py", "x = 'a\u202e b'"), "not-text"),
        (SearchReplace("pkg/a.py", "x = 1", "x = 1  # \u2066"), "not-text"),
        (CreateFile("c.py", "é" * (MAX_WRITTEN // 2 + 1)), "too-large"),
        (SearchReplace("pkg/a.py", "x = 1", "é" * (MAX_WRITTEN // 2 + 1)), "too-large"),
        (SearchReplace("pkg/a.py", "x = 1", "x = 1"), "no-change"),
        (SearchReplace("pkg/a.py", "", "x"), "no-match"),
    ],
)
def test_refusals(edit: Edit, kind: str) -> None:
    assert kinds(edit) == [(0, kind)]


def test_names_that_collide_within_one_proposal() -> None:
    assert kinds(CreateFile("n.py", "1"), CreateFile("n.py", "2")) == [(1, "exists")]
    assert kinds(CreateFile("n.py", "1"), CreateFile("N.py", "2")) == [(1, "refused-path")]
    assert kinds(CreateFile("d/n.py", "1"), CreateFile("d", "2")) == [(1, "refused-path")]
    assert kinds(CreateFile("d", "1"), CreateFile("d/n.py", "2")) == [(1, "refused-path")]


def test_a_failure_names_a_hostile_path_in_plain_characters() -> None:
    outcome = apply(DeleteFile("a\x1b[2J\u202e\ud800.py"))
    assert isinstance(outcome, ApplyFailure)
    assert outcome.failures[0].path == "a\\x1b[2J\\u202e\\ud800.py"


def test_the_reproduction_test_joins_on_request() -> None:
    edits = (SearchReplace("pkg/a.py", "y = 2", "y = 5"),)
    test = ReproductionTest("tests/test_new.py", "def test(): assert 0\n")
    proposal = PatchProposal(edits, reproduction_test=test)
    without = apply_proposal(proposal, FILES)
    assert isinstance(without, AppliedPatch)
    assert [change.path for change in without.changes] == ["pkg/a.py"]
    both = apply_proposal(proposal, FILES, include_test=True)
    assert isinstance(both, AppliedPatch)
    assert [change.path for change in both.changes] == ["pkg/a.py", "tests/test_new.py"]
    assert both.edits[1] == AppliedEdit(1, "tests/test_new.py", MatchTier.CREATED, 1)
    existing = ReproductionTest("tests/test_a.py", "x")
    refused = apply_proposal(
        PatchProposal(edits, reproduction_test=existing), FILES, include_test=True
    )
    assert isinstance(refused, ApplyFailure)
    assert [(f.index, f.kind) for f in refused.failures] == [(1, "exists")]


LETTERS = MemoryFiles({"l.py": "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n"})


def letters(*edits: SearchReplace, **options: Any) -> str:
    outcome = applied(*edits, files=LETTERS, **options)
    return (outcome.changes[0].after or b"").decode()


def test_edits_that_overlap_are_refused() -> None:
    first = SearchReplace("l.py", "b = 2\nc = 3\n", "b = 22\nc = 33\n")
    second = SearchReplace("l.py", "c = 3\nd = 4\n", "c = 30\nd = 44\n")
    assert kinds(first, second, files=LETTERS) == [(1, "no-match")]


def test_a_line_hint_counts_in_the_file_as_it_was_shown() -> None:
    files = MemoryFiles({"l.py": "x\n" * 2 + "-\n" * 30 + "y\n" + "-\n" * 5 + "y\n"})
    grown = SearchReplace("l.py", "x\nx\n", "x\n" * 8)
    outcome = applied(grown, SearchReplace("l.py", "y\n", "z\n", 39), files=files)
    assert (outcome.changes[0].after or b"").endswith(b"y\n" + b"-\n" * 5 + b"z\n")


def test_shown_lines_move_with_earlier_edits() -> None:
    text = "x\n" + "-\n" * 9 + "y = 1\n" + "-\n" * 9 + "y = 1\n"
    files = MemoryFiles({"l.py": text})
    grown = SearchReplace("l.py", "x\n", "x\n" * 9)
    edits = (grown, SearchReplace("l.py", "y = 1\n", "y = 2\n"))
    outcome = applied(*edits, files=files, shown={"l.py": ((1, 2), (20, 21))})
    assert (outcome.changes[0].after or b"").endswith(b"-\ny = 2\n")
    assert kinds(*edits, files=files) == [(1, "ambiguous")]


APPLIED = "def f():\n    return compute(1, 2, 3)\n"


def test_an_edit_that_is_applied_already_does_not_fail_the_others() -> None:
    files = MemoryFiles({"m.py": f"{APPLIED}x = 1\n"})
    again = SearchReplace("m.py", "def f():\n    return compute(1, 2)\n", APPLIED)
    same = SearchReplace("m.py", "x = 1\n", "x = 1\n")
    outcome = applied(again, same, SearchReplace("m.py", "x = 1", "x = 2"), files=files)
    assert [edit.tier.value for edit in outcome.edits] == [
        "already-applied",
        "already-applied",
        "exact",
    ]
    [(index, kind, reason)] = failures(again, same, files=files)
    assert (index, kind) == (0, "no-change")
    assert "change nothing" in reason
    assert failures(again, files=files) == [
        (0, "already-applied", "the replacement is in the file already, at line 1")
    ]


def test_a_lenient_match_that_breaks_the_file_is_refused() -> None:
    files = MemoryFiles({"m.py": "if a:\n    b = 1\n    c = 2\nd = 3\n"})
    edit = SearchReplace("m.py", "b = 1\nc = 2\n", "b = (\nc = 2\n")
    [(_, kind, reason)] = failures(edit, files=files)
    assert kind == "broken-syntax"
    assert "line 2" in reason
    exact = SearchReplace("m.py", "    b = 1\n", "    b = (\n")
    assert applied(exact, files=files).changes


def test_lines_inside_an_edit_keep_their_own_ends() -> None:
    files = MemoryFiles({"m.txt": b"a\r\nb\nc\r\nd\ne\r\n"})
    outcome = applied(SearchReplace("m.txt", "a\nb\nc\nd\ne\n", "a\nb\nC\nx\nd\nE\n"), files=files)
    assert outcome.changes[0].after == b"a\r\nb\nC\r\nx\r\nd\nE\r\n"


def test_overlay_reads_changes_over_the_base() -> None:
    changes = (
        FileChange("pkg/a.py", b"", b"changed\n"),
        FileChange("pkg/b.py", b"", None),
        FileChange("new.py", None, b"n\n"),
    )
    files = OverlayFiles(FILES, changes)
    read = {path: files.read(path) for path in ("pkg/a.py", "pkg/b.py", "new.py", "run.sh", "no")}
    assert [*read.values()] == [b"changed\n", None, b"n\n", b"echo\n", None]
    assert [path for path in (*read, "logo.png") if not files.exists(path)] == ["pkg/b.py", "no"]
