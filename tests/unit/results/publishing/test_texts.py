from __future__ import annotations

import re

from agent.errors import Status
from agent.results.publishing import commit_message, describe_result
from agent.run.record import Ledger, RunRecord, make_record
from agent.types import Problem

HOSTILE = (
    "Fixes #7, closes GH-8 and https://github.com/a/b/issues/9 @all [skip ci] [skip azurepipelines]"
    " ***NO_CI***\n/close\n```x"
)


def result(**update: object) -> RunRecord:
    issue = Problem("It breaks", "", "owner/name#12")
    made = make_record(Ledger(), status=Status.ACCEPTED, message="tests pass", issue=issue)
    return made.model_copy(update={"verdict": "verified", **update})


def test_a_message_has_the_title_the_explanation_and_the_issue() -> None:
    message = commit_message("It breaks", "One.\n\nTwo " + "long " * 40, "owner/name#12")
    lines = message.split("\n")
    assert lines[:3] == ["Fix: It breaks", "", "One."]
    assert lines[-2:] == ["Fixes owner/name#12", ""]
    assert max(map(len, lines)) <= 72
    trailers = commit_message("It breaks", "Why.\n\nskip-checks: true\nSigned-off-by : x", "")
    assert trailers.endswith("\n\nskip-checks - true Signed-off-by : x\n")
    assert commit_message("It breaks", "", "issue.md") == "Fix: It breaks\n"
    assert len(commit_message("word " * 60, "", "").partition("\n")[0]) <= 72
    assert commit_message("", "", "") == "Fix: the issue\n"


def test_foreign_words_in_a_message_close_nothing_and_skip_nothing() -> None:
    message = commit_message(HOSTILE, HOSTILE, "issue.md")
    assert not re.search(r"#\d|GH-\d|issues/\d|\[skip|\*NO_CI", message)


def test_foreign_texts_of_a_description_stay_in_their_blocks() -> None:
    text = describe_result(
        result(thought=HOSTILE, message="````\n/close", diff="+```\n+# x"), with_diff=True
    )
    fence = ""
    for line in text.split("\n"):
        mark = re.match(r"`{3,}", line)
        if not fence and mark:
            fence = mark[0]
        elif fence and line == fence:
            fence = ""
        elif not fence:
            assert "#7" not in line
            assert not line.startswith("/")
    assert fence == ""
    assert "Fixes owner/name#12" not in text  # a comment closes nothing
    assert describe_result(result()).endswith("Fixes owner/name#12\n")


def test_a_long_diff_is_cut_to_what_a_comment_holds() -> None:
    text = describe_result(result(diff="+x\n" * 100_000), with_diff=True)
    assert len(text) < 65_536
    assert "[cut off]" in text
