from __future__ import annotations

import pytest

from agent.errors import Status
from agent.report.records import AttemptRecord, PieceRecord, ReceiptRecord, ResultRecord
from agent.report.rows import GROUPS, UNKNOWN_KIND, Cause, GroupCount, cause_of, shares


def result(**attempt: object) -> ResultRecord:
    return ResultRecord(status="x", attempts=(AttemptRecord.model_validate(attempt),))


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_a_group(status: Status) -> None:
    groups = [group for group, _ in GROUPS]
    verdict = {"accepted": "verified", "broken": "regressed"}.get(status.value)
    cause = cause_of(status.value, verdict, None)
    assert cause.group in groups
    assert cause.group != "other"


@pytest.mark.parametrize(
    ("verdict", "group"),
    [
        ("verified", "verified"),
        ("not-regressed", "not regressed"),
        ("unverified", "unverified"),
        ("regressed", "tests red"),
        ("broken-syntax", "broken syntax"),
        ("unheard-of", "other"),
    ],
)
def test_a_verdict_groups_what_was_judged(verdict: str, group: str) -> None:
    assert cause_of("accepted", verdict, None).group == group


def test_the_kinds_of_failed_edits_and_replies_are_told() -> None:
    failed = result(failure_kinds=["no-match", "ambiguous", "no-match"])
    assert cause_of("not-applied", None, failed) == Cause("not applied", "ambiguous, no-match")
    truncated = result(failure_kinds=["truncated"])
    assert cause_of("unparseable", None, truncated) == Cause("unparseable", "truncated")
    assert cause_of("not-applied", None, result()) == Cause("not applied", UNKNOWN_KIND)


def test_what_the_model_was_not_shown_counts_as_not_retrieved() -> None:
    lacking = result(failure_kinds=["no-edit"], missing=["a.py:f"])
    assert cause_of("no-edit", None, lacking).group == "not retrieved"
    empty = result(failure_kinds=["no-match"]).model_copy(update={"receipt": ReceiptRecord()})
    assert cause_of("not-applied", None, empty).group == "not retrieved"
    shown = empty.model_copy(update={"receipt": ReceiptRecord(pieces=(PieceRecord(),))})
    assert cause_of("not-applied", None, shown).group == "not applied"


def test_red_tests_are_told_apart() -> None:
    newly = result(validation={"newly_failing": ["t"]})
    own = result(validation={"reproduction_after": {"failed": 1}})
    assert cause_of("broken", "regressed", newly).kind == "tests fail newly"
    assert cause_of("broken", "regressed", own).kind == "the reply's own test still fails"


def test_shares_come_in_the_order_of_the_pipeline_and_kinds_by_frequency() -> None:
    causes = [
        Cause("not applied", "no-match"), Cause("budget"), Cause("not applied", "exists"),
        Cause("verified"), Cause("not applied", "exists"), Cause("not applied"),
    ]  # fmt: skip
    assert shares(causes) == (
        GroupCount("verified", "good", 1, ()),
        GroupCount("not applied", "bad", 4, (("exists", 2), ("no-match", 1))),
        GroupCount("budget", "bad", 1, ()),
    )
