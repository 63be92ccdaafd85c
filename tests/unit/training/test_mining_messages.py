from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.messages import clean_message

KEEP = "Keep the order of keys"
CLEANED = [
    # raw, subject, body
    (f"{KEEP} (#123)", KEEP, ""),
    (f"{KEEP} (gh-12)", KEEP, ""),
    (f"# {KEEP}", KEEP, ""),
    (f"* {KEEP}", KEEP, ""),
    (f"Fixes #12\n\n{KEEP}", KEEP, ""),
    (f"{KEEP}, see CHANGES.rst", f"{KEEP}, see", ""),
    (f'Merge "{KEEP}" into main', KEEP, ""),
    (f"Merge pull request #1 from a/fix\n\n{KEEP}\n\nThey went.", KEEP, "They went."),
    (f"Merge keys-1234: {KEEP}\n\nAuthor: me\nReviewer: you", KEEP, ""),
    (f"Merge keys-1234\n\nAuthor: me\nFixes: #99\n\n{KEEP}", KEEP, ""),
    (
        f"{KEEP} that were sort…\n\n…ed by nobody\n\nMore.",
        f"{KEEP} that were sorted by nobody",
        "More.",
    ),
    (
        f"{KEEP}\n\nThey went.\n\nSigned-off-by: A <a@b>\nCo-authored-by: B <b@b>\n"
        "Reviewed-by: C\n(cherry picked from commit abc)\ngit-svn-id: svn://x@1 2",
        KEEP,
        "They went.",
    ),
    (
        f"{KEEP} (#1)\n\n* {KEEP}\n\n* wip\n\n* Fix flake8\n\n* address review comments\n\n"
        "* Sort only sets\n\n* update CHANGELOG.md",
        KEEP,
        "* Sort only sets",
    ),
]


@pytest.mark.parametrize(("raw", "subject", "body"), CLEANED)
def test_cleaned(raw: str, subject: str, body: str) -> None:
    message = clean_message(raw)
    assert message is not None
    assert (message.subject, message.body) == (subject, body)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "Fix bug",
        "Fixes #12 and #13",
        "Merge branch 'main' into feature",
        "Merge remote-tracking branch 'origin/main' into feature for good",
        "Merge pull request #12 from a/b",
        "Fix the broken build",
        'Revert "Keep the order of the keys"',
        "Release version 1.2.3 of the project",
        "Releasing 1.2.3 for everybody to use",
        "Prepare for the next release of this",
        "Tag 1.2.3 as the stable version",
        "Bump version to 1.2.3 for release",
        "Bump requests from 2.1 to 2.2",
        "1.2.3 is here for everybody to see",
        "Update dependencies of the whole project",
        "docs: explain how keys are ordered",
        "chore(ci): use newer images all over",
        "DOC: explain how keys are ordered",
        "TST: check how keys are ordered",
        "Fix typo in an error message here",
        "Fix spelling of several words here",
        "Improve docstring of the ordering function",
        "Update the README with an example of keys",
        "Run black on the whole code base",
        "Fix mypy errors in the whole code base",
        "Sort imports with isort all over",
        "Fix flake8 warnings in this module",
        "Add type hints to the ordering functions",
        "Fix whitespace in the ordering functions",
        "pre-commit autoupdate of all the hooks",
        "Update copyright years of all the files",
        "Rename order_keys to sort_keys all over",
        "Move order_keys to a module of its own",
        "Add tests for the order of keys",
        "Fix tests on Windows once more today",
        "Let CI run on all branches too",
        "Drop support for Python 3.7 at last",
        "Clean up the code of the ordering",
        "Some minor fixes",
        "pkg/a.py pkg/b.py pkg/c.py pkg/d.py",
        "Apply suggestions from code review by others",
        "修复了排序键的错误 很多 很多 很多",
    ],
)
def test_no_message_to_learn_from(raw: str) -> None:
    assert clean_message(raw) is None


@pytest.mark.parametrize(
    ("raw", "fix"),
    [
        ("Fix the order of keys", True),
        ("Keys are in the wrong order", True),
        ("Don't lose keys in a merge", True),
        ("Raise KeyError for keys of another type", True),
        ("Order keys by name\n\nCloses #12", True),
        ("Order keys by name\n\nFixes: ticket:12", True),
        ("Order keys by name\n\nTraceback (most recent call last)", True),
        ("Add an option to order keys", False),
        ("Prefix keys with their section name", False),
        ("Order keys by name\n\nThis is not an error.", False),
    ],
)
def test_fix(raw: str, fix: bool) -> None:
    message = clean_message(raw)
    assert message is not None
    assert message.fix is fix


@given(st.text(max_size=300))
def test_any_text_is_a_message_or_none(raw: str) -> None:
    message = clean_message(raw)
    assert message is None or (message.subject and "\n" not in message.subject)
