"""New keys and masks are refused; existing keys may stay, move and be deleted."""

from __future__ import annotations

import pytest

from agent.patching import apply_proposal
from agent.shared.secrets.finding import MASK
from agent.types import (
    AppliedPatch,
    ApplyFailure,
    CreateFile,
    DeleteFile,
    Edit,
    PatchProposal,
    RenameFile,
    ReproductionTest,
    SearchReplace,
)
from tests.support.memory_files import MemoryFiles

# Assembled, so that no scanner finds them in this file.
TOKEN = "ghp_" + "a1B2c3D4e5" * 4
OTHER = "glrt-" + "q7Rf2Zx9Lm4Tb8WnC6Vy"
RANDOM = "q7Rf2Zx9" + "Lm4Tb8Wn" + "C6Vy1KpD"
KEY = "\n".join(
    ["-----BEGIN PRIVATE KEY-----", *["MIIEpAIBAAKCAQEA7bq" + RANDOM * 2] * 3, "-----END"]
)
FILES = {
    "app.py": f'TOKEN = "{TOKEN}"\nlimit = 1\n',
    "db.py": f'DB_PASSWORD = "{RANDOM}"\nlimit = 1\n',
    "empty.py": "x = 1\n",
}


def apply(*edits: Edit, allow: tuple[str, ...] = ()) -> AppliedPatch | ApplyFailure:
    return apply_proposal(PatchProposal(edits), MemoryFiles(FILES), allow=allow)


def refused(*edits: Edit, allow: tuple[str, ...] = ()) -> str:
    done = apply(*edits, allow=allow)
    assert isinstance(done, ApplyFailure)
    assert [failure.kind for failure in done.failures] == ["secret"]
    return done.reason


@pytest.mark.parametrize(
    "edit",
    [
        SearchReplace("empty.py", "x = 1", f'x = "{OTHER}"'),
        CreateFile("new.py", f'call("{OTHER}")\n'),
        CreateFile("app.py", f'TOKEN = "{OTHER}"\nlimit = 1\n', replace_existing=True),
        CreateFile("key.txt", KEY),
    ],
)
def test_a_key_that_no_file_held_before_is_refused(edit: Edit) -> None:
    reason = refused(edit)
    assert "looks like a secret" in reason
    assert f"--allow {edit.path}" in reason
    assert OTHER not in reason
    assert RANDOM not in reason


def test_the_failure_names_the_edit_and_the_line() -> None:
    edits = (
        SearchReplace("app.py", "limit = 1", "limit = 2"),
        SearchReplace("empty.py", "x = 1", f'x = 1\ny = "{OTHER}"'),
    )
    assert refused(*edits).startswith("edit 2 (empty.py): line 2 would add")


def test_a_user_can_allow_it_for_a_file() -> None:
    edit = CreateFile("tests/data/new.py", f'call("{OTHER}")\n')
    assert isinstance(apply(edit, allow=("tests/data/*",)), AppliedPatch)
    refused(edit, allow=("tests/other/*",))


@pytest.mark.parametrize(
    "edits",
    [
        (SearchReplace("app.py", "limit = 1", "limit = 2"),),
        (RenameFile("app.py", "moved.py"),),
        (DeleteFile("app.py"),),
        (SearchReplace("app.py", "limit = 1", f'again = "{TOKEN}"'),),
        (SearchReplace("empty.py", "x = 1", "token = 'your-api-key-1234567890'"),),
        (SearchReplace("empty.py", "x = 1", "key = 'AKIA" + "IOSFODNN7EXAMPLE'"),),
        (SearchReplace("empty.py", "x = 1", f"fixture_token = '{RANDOM}'"),),
        (SearchReplace("app.py", f'"{TOKEN}"', 'os.environ["TOKEN"]'),),
    ],
)
def test_what_was_there_and_what_is_made_up_passes(edits: tuple[Edit, ...]) -> None:
    assert isinstance(apply(*edits), AppliedPatch)


def test_a_mask_is_never_written_over_the_value_it_stands_for() -> None:
    """Write a mask with a search of the line beside it, a whole file, or a lenient match."""
    whole = CreateFile("db.py", f'DB_PASSWORD = "{MASK}"\nlimit = 2\n', replace_existing=True)
    assert "the value would be lost" in refused(whole)
    beside = SearchReplace("db.py", "limit = 1", f'DB_PASSWORD = "{MASK}"\nlimit = 2')
    assert "the value would be lost" in refused(beside)


def test_a_search_text_with_a_mask_is_told_what_the_mask_is() -> None:
    edit = SearchReplace("db.py", f'DB_PASSWORD = "{MASK}"\nlimit = 1', "limit = 2")
    done = apply(edit)
    assert isinstance(done, ApplyFailure)
    assert f'"{MASK}" stands for a value that is not shown' in done.failures[0].advice
    assert RANDOM not in done.reason
    assert [c.text for f in done.failures for c in f.candidates] == [
        f'DB_PASSWORD = "{MASK}"\nlimit = 1'
    ]


def test_a_reproduction_test_is_no_way_out() -> None:
    test = ReproductionTest("test_new.py", f'TOKEN = "{OTHER}"\n')
    proposal = PatchProposal((SearchReplace("empty.py", "x = 1", "x = 2"),), "", test)
    done = apply_proposal(proposal, MemoryFiles(FILES), include_test=True)
    assert isinstance(done, ApplyFailure)
    assert done.failures[0].kind == "secret"


def test_regions_that_are_shown_to_a_model_hold_no_secret() -> None:
    """Secrets are masked even if the region begins in the middle of a key."""
    source = f"PEM = '\n{KEY}-----'\nx = 1\ny = 2\nz = 3\nx = 1\n"
    files = MemoryFiles({"keys.py": source})
    done = apply_proposal(PatchProposal((SearchReplace("keys.py", "x = 1", "x = 2"),)), files)
    assert isinstance(done, ApplyFailure)
    (failure,) = done.failures
    assert failure.candidates[0].text == f"{MASK}\n-----END-----'\nx = 1\ny = 2\nz = 3"
    assert RANDOM not in repr(failure)
