"""A wrong path is put right only where one file can be meant."""

from __future__ import annotations

from typing import Any

import pytest

from agent.patching.applying import apply_proposal
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
    RenameFile,
    Repair,
    SearchReplace,
    SkippedFile,
)
from tests.support.memory_files import MemoryFiles

FILES = MemoryFiles(
    {
        "setup.py": "setup(name='shop')\n",
        "src/shop/till.py": "def total(coins):\n    return sum(coins)\n",
        "src/shop/Coin.py": "class Coin:\n    value = 1\n",
        "src/shop/util.py": "def floor(x):\n    return x // 1\n",
        "src/web/util.py": "def escape(x):\n    return x\n",
        "tests/conftest.py": "import pytest\n",
        "run.sh": "echo one\n",
    },
    skipped=(SkippedFile("link", "symlink"),),
    executable=("run.sh",),
)
TOTAL = (
    "def total(coins):\n    return sum(coins)\n",
    "def total(coins):\n    return sum(coins) + 1\n",
)


def apply(*edits: Edit, **options: Any) -> AppliedPatch | ApplyFailure:
    return apply_proposal(PatchProposal(edits), FILES, **options)


@pytest.mark.parametrize(
    "path",
    [
        "/testbed/src/shop/till.py",
        "/repo/src/shop/till.py",
        "/home/me/work/shop/src/shop/till.py",
        "a/src/shop/till.py",
        "b/src/shop/till.py",
        "repo/src/shop/till.py",
        "shop/till.py",
        "till.py",
        "SRC/shop/Till.py",
        "shop/Till.py",
        "src\\shop\\till.py",
        "`src/shop/till.py`",
        "lib/shop/core/till.py",
    ],
)
def test_a_path_that_means_one_file_is_resolved_and_reported(path: str) -> None:
    outcome = apply(SearchReplace(path, *TOTAL))
    assert isinstance(outcome, AppliedPatch), outcome
    assert outcome.edits == (AppliedEdit(0, "src/shop/till.py", MatchTier.EXACT, 2, path),)
    [repair] = outcome.repairs
    assert (repair.name, repair.note, repair.edit) == ("path", "taken for src/shop/till.py", 0)


@pytest.mark.parametrize(
    "edit",
    [
        SearchReplace("util.py", "    return", "    yield"),  # two files have it
        SearchReplace("till.py", "not there\n", "x\n"),  # the text is not in it
        SearchReplace("lib/till.py", "sum(coins)", "max(coins)"),  # too little to know the file by
        SearchReplace("/etc/passwd", *TOTAL),
        SearchReplace("../src/shop/till.py", *TOTAL),
        SearchReplace("/testbed/../src/shop/till.py", *TOTAL),
        SearchReplace("src/shop/till\u202e.py", *TOTAL),
        SearchReplace("shop/link", *TOTAL),
        DeleteFile("util.py"),
        DeleteFile("no/till.pyc"),
    ],
)
def test_a_path_that_may_mean_several_or_none_is_refused(edit: Edit) -> None:
    outcome = apply(edit)
    assert isinstance(outcome, ApplyFailure), outcome
    assert outcome.failures[0].kind in ("unknown-file", "refused-path")


def test_the_text_decides_between_files_of_one_name() -> None:
    outcome = apply(SearchReplace("util.py", "    return x // 1\n", "    return int(x)\n"))
    assert isinstance(outcome, AppliedPatch)
    assert outcome.edits[0].path == "src/shop/util.py"


def test_a_made_up_path_is_found_among_the_files_that_were_shown() -> None:
    edit = SearchReplace("core/money.py", *TOTAL)
    assert isinstance(apply(edit), ApplyFailure)
    outcome = apply(edit, shown={"src/shop/till.py": ((1, 2),), "setup.py": ()})
    assert isinstance(outcome, AppliedPatch)
    assert outcome.edits[0].path == "src/shop/till.py"


def test_a_resolved_path_is_still_protected() -> None:
    edit = SearchReplace("/testbed/tests/conftest.py", "import pytest\n", "import os\n")
    outcome = apply(edit)
    assert isinstance(outcome, ApplyFailure)
    assert outcome.failures[0].kind == "refused-path"
    assert isinstance(apply(edit, allow=("conftest.py",)), AppliedPatch)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("/testbed/new.py", "new.py"),
        ("/testbed/src/shop/new.py", "src/shop/new.py"),
        ("/home/me/shop/src/shop/new.py", "src/shop/new.py"),
        ("a/src/shop/new.py", "src/shop/new.py"),
        ("b/new.py", "new.py"),
        ("repo/new.py", "repo/new.py"),
        ("src/shop/deep/new.py", "src/shop/deep/new.py"),
    ],
)
def test_new_files_lose_the_roots_of_containers_and_diffs(written: str, path: str) -> None:
    outcome = apply(CreateFile(written, "x = 1\n"))
    assert isinstance(outcome, AppliedPatch)
    assert outcome.changes == (FileChange(path, None, b"x = 1\n"),)
    assert outcome.edits[0].path_as_written == ("" if written == path else written)


@pytest.mark.parametrize(
    "path", ["/etc/cron.d/x", "/tmp/x.py", "a\\b.py", "/testbed/../x.py", "/testbed/.git/x", "~/x"]
)
def test_new_files_elsewhere_are_refused(path: str) -> None:
    assert isinstance(apply(CreateFile(path, "x")), ApplyFailure)


def test_nothing_is_resolved_when_switched_off() -> None:
    outcome = apply(SearchReplace("till.py", *TOTAL), no_repair=("path",))
    assert isinstance(outcome, ApplyFailure)
    assert outcome.failures[0].kind == "unknown-file"


# ----------------------------------------------------------------------------------------- renames


def test_a_renamed_file_keeps_bytes_and_mode_and_can_be_edited() -> None:
    outcome = apply(RenameFile("run.sh", "bin/go.sh"), SearchReplace("bin/go.sh", "one", "two"))
    assert isinstance(outcome, AppliedPatch)
    assert outcome.changes == (
        FileChange("bin/go.sh", None, b"echo two\n", executable=True),
        FileChange("run.sh", b"echo one\n", None, executable=True),
    )
    assert [edit.tier for edit in outcome.edits] == [MatchTier.RENAMED, MatchTier.EXACT]
    assert b"new file mode 100755" in outcome.diff


def test_a_file_can_change_the_case_of_its_name() -> None:
    outcome = apply(RenameFile("src/shop/Coin.py", "src/shop/coin.py"))
    assert isinstance(outcome, AppliedPatch)
    assert [change.path for change in outcome.changes] == ["src/shop/Coin.py", "src/shop/coin.py"]


@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        (RenameFile("no.py", "x.py"), "unknown-file"),
        (RenameFile("run.sh", "setup.py"), "exists"),
        (RenameFile("run.sh", "Setup.py"), "refused-path"),
        (RenameFile("run.sh", "../x"), "refused-path"),
        (RenameFile("run.sh", ".git/hooks/x"), "refused-path"),
        (RenameFile("run.sh", "conftest.py"), "refused-path"),
        (RenameFile("tests/conftest.py", "x.py"), "refused-path"),
        (RenameFile("run.sh", "link/x"), "refused-path"),
        (RenameFile("run.sh", "./run.sh"), "no-change"),
        (RenameFile("link", "x"), "not-text"),
    ],
)
def test_renames_that_are_refused(edit: Edit, kind: str) -> None:
    outcome = apply(edit)
    assert isinstance(outcome, ApplyFailure), outcome
    assert outcome.failures[0].kind == kind


def test_a_refused_rename_leaves_the_file_where_it_is() -> None:
    outcome = apply(
        RenameFile("run.sh", "setup.py"), SearchReplace("run.sh", "one", "two"), DeleteFile("zz")
    )
    assert isinstance(outcome, ApplyFailure)
    assert [failure.index for failure in outcome.failures] == [0, 2]


def test_repairs_are_reported_with_what_they_saved() -> None:
    outcome = apply(SearchReplace("/testbed/src/shop/till.py", *TOTAL))
    assert isinstance(outcome, AppliedPatch)
    assert outcome.repairs == (Repair("path", "taken for src/shop/till.py", "refused-path", 0),)
