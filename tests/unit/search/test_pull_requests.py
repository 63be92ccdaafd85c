from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.search.history import CommitMessage, PullRequest, named_in, parse_messages, pull_requests

PROJECT = "github.example.org/owner/shop"
PULL = "https://github.example.org/owner/shop/pull/12"


def message(name: str, subject: str, body: str = "", parents: str = "") -> CommitMessage:
    return CommitMessage(name, tuple(parents.split()), subject, body)


@pytest.mark.parametrize(
    ("subject", "body", "label", "link"),
    [
        ("Merge pull request #12 from a/b", "Fix totals\n\nmore", "#12 Fix totals", PULL),
        ("Fix totals (#12)", "", "#12 Fix totals", PULL),
        (
            "Merge branch 'fix' into 'main'",
            "Fix totals\n\nSee merge request owner/shop!12",
            "!12 Fix totals",
            "https://github.example.org/owner/shop/-/merge_requests/12",
        ),
    ],
)
def test_a_message_names_its_pull_request(subject: str, body: str, label: str, link: str) -> None:
    found = named_in(message("a", subject, body), PROJECT)
    assert found is not None
    assert (found.label, found.link) == (label, link)


@pytest.mark.parametrize("subject", ["Fix #12", "Merge branch 'a'", "See (#12) there", ""])
def test_an_issue_is_no_pull_request(subject: str) -> None:
    assert named_in(message("a", subject, "Fixes #12"), PROJECT) is None


def test_a_local_project_has_no_links() -> None:
    found = named_in(message("a", "Fix (#3)"), "local/shop-0123")
    assert found == PullRequest(3, "Fix")


def test_a_merge_labels_the_commits_that_it_brought_in() -> None:
    #  base - one ------- merge1 - own - merge2
    #     \- side1 - side2 -/    \- late -/
    messages = [
        message("merge2", "Merge pull request #2 from x/late", "Late", "own late"),
        message("own", "Own", "", "merge1"),
        message("late", "Late work", "", "merge1"),
        message("merge1", "Merge pull request #1 from x/side", "Side", "one side2"),
        message("side2", "More (#9)", "", "side1"),
        message("side1", "Begin", "", "base"),
        message("one", "One", "", "base"),
        message("base", "Base"),
    ]
    found = {name: request.number for name, request in pull_requests(messages, PROJECT).items()}
    assert found == {"merge2": 2, "late": 2, "merge1": 1, "side2": 9, "side1": 1}


def test_no_messages() -> None:
    assert pull_requests([], PROJECT) == {}


def test_messages_are_parsed() -> None:
    output = b"aa\0bb cc\0Subject\0Body\nmore\0\nbb\0\0First\0\0\n"
    assert list(parse_messages(output)) == [
        CommitMessage("aa", ("bb", "cc"), "Subject", "Body\nmore"),
        CommitMessage("bb", (), "First", ""),
    ]


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_message_can_be_read(subject: str, body: str) -> None:
    found = named_in(message("a", subject, body), PROJECT)
    assert found is None or found.number >= 0
