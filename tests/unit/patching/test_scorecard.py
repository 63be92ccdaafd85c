"""The benchmark harness, and a small scorecard and fuzz run on synthetic texts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.patching import unified_diff
from agent.types import FileChange
from benchmarks.patching import oracle
from benchmarks.patching.appliers import apply_git, apply_ours, apply_patch_fuzz, exact_only
from benchmarks.patching.cases import Attempt, Case, Likeness, Outcome, Wanted, digest, outcome
from benchmarks.patching.drafting import Change, draft
from benchmarks.patching.fuzz import fuzz, mutated, seeds
from benchmarks.patching.perturbing import PERTURBATIONS
from benchmarks.patching.reviewing import Review, reviewed
from benchmarks.patching.scorecard import (
    OURS,
    Score,
    as_json,
    explain,
    missing_corpora,
    report,
    run,
)
from benchmarks.patching.strict_patch import BadDiff, strict_patch
from benchmarks.patching.written import TILL, TILL_FIXED, written_cases

_FILES: Mapping[str, bytes] = {"a.txt": b"one\ntwo\nthree\n"}


def _case(wanted: Wanted, after: bytes | None, likeness: Likeness = Likeness.BYTES) -> Case:
    truth = None if after is None else {"a.txt": after}
    return Case("id", "c", "k", "json", "", _FILES, wanted, truth, likeness)


# ---------------------------------------------------------------------------------- the scorecard


@pytest.fixture(scope="module")
def score() -> Score:
    return run(written_cases(), foreign=False, reviews={})


def test_nothing_of_our_own_text_is_applied_wrongly(score: Score) -> None:
    assert [explain(row) for row in score.wrong()] == []


def test_every_shape_is_applied_unharmed(score: Score) -> None:
    plain = [row for row in score.of(OURS) if row.case.kind == "none"]
    assert {row.case.shape for row in plain} == {
        "json", "blocks", "diff", "envelope", "whole", "snippet"
    }  # fmt: skip
    assert [row.case.id for row in plain if row.outcome is not Outcome.RIGHT] == []


def test_a_place_that_occurs_twice_is_refused_in_every_shape(score: Score) -> None:
    rows = [row for row in score.of(OURS) if row.case.kind == "place occurs twice"]
    assert len(rows) > 10
    assert {row.outcome for row in rows} == {Outcome.REFUSED}


def test_the_report_counts_every_case_once_for_each_applier() -> None:
    cases = [case for case in written_cases() if "scenario:" in case.id][:12]

    score = run(cases, reviews={})
    text = report(score)

    assert len(score.of(OURS)) == 12
    assert "| scenarios | 12 |" in text
    assert "patch --fuzz=5" in text
    assert '"applier": "git apply"' in as_json(score)


def test_what_is_not_fetched_is_named(tmp_path: Path) -> None:
    missing = missing_corpora(tmp_path)

    assert "Aider-AI/aider" in missing
    assert "trickl/llm-patch" in missing


# ---------------------------------------------------------------------------------------- judging


@pytest.mark.parametrize(
    ("wanted", "after", "changed", "expected"),
    [
        (Wanted.APPLY, b"1\n", {"a.txt": b"1\n"}, Outcome.RIGHT),
        (Wanted.APPLY, b"1\n", {"a.txt": b"2\n"}, Outcome.WRONG),
        (Wanted.APPLY, b"1\n", {"a.txt": b"1\n", "b.txt": b""}, Outcome.WRONG),
        (Wanted.APPLY, b"1\n", None, Outcome.MISSED),
        (Wanted.EITHER, b"1\n", None, Outcome.REFUSED),
        (Wanted.EITHER, b"1\n", {"a.txt": b"2\n"}, Outcome.WRONG),
        (Wanted.REFUSE, None, None, Outcome.REFUSED),
        (Wanted.REFUSE, b"1\n", {"a.txt": b"1\n"}, Outcome.WRONG),
        (Wanted.REFUSE, None, {"a.txt": _FILES["a.txt"]}, Outcome.REFUSED),
        (Wanted.UNKNOWN, None, {"a.txt": b"2\n"}, Outcome.UNJUDGED),
        (Wanted.UNKNOWN, b"2\n", {"a.txt": b"2\n"}, Outcome.RIGHT),
    ],
)
def test_outcomes(
    wanted: Wanted, after: bytes | None, changed: dict[str, bytes | None] | None, expected: Outcome
) -> None:
    assert outcome(_case(wanted, after), Attempt(changed)) is expected


def test_an_oracle_does_not_vouch_for_white_space() -> None:
    spaced = Attempt({"a.txt": b"  one\n\nTWO\n"})

    loose = _case(Wanted.APPLY, b"one\nTWO\n", Likeness.SPACE)
    assert outcome(loose, spaced) is Outcome.RIGHT
    blank = _case(Wanted.APPLY, b"one\nTWO\n", Likeness.BLANK)
    assert outcome(blank, spaced) is Outcome.WRONG
    assert outcome(blank, Attempt({"a.txt": b"one\n\n\nTWO\n"})) is Outcome.RIGHT


def test_a_review_holds_for_one_result_only() -> None:
    case = _case(Wanted.UNKNOWN, None)
    seen, other = Attempt({"a.txt": b"2\n"}), Attempt({"a.txt": b"3\n"})
    reviews = {("id", digest(seen.changed)): Review(Outcome.RIGHT, "read")}

    assert reviewed(case, seen, Outcome.UNJUDGED, reviews) is Outcome.RIGHT
    assert reviewed(case, other, Outcome.UNJUDGED, reviews) is Outcome.UNJUDGED


def test_exact_only_keeps_nothing_that_needed_leniency() -> None:
    lenient = Attempt({"a.txt": b"2\n"}, tiers=("exact", "indentation"))

    assert exact_only(lenient).changed is None
    assert exact_only(Attempt({"a.txt": b"2\n"}, tiers=("exact",))).changed == {"a.txt": b"2\n"}


# ------------------------------------------------------------------------- foreign appliers, oracle


def test_git_and_patch_get_the_diff_of_the_reply() -> None:
    diff = "```diff\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n```\n"
    case = Case("id", "c", "k", "diff", diff, _FILES, Wanted.APPLY, {"a.txt": b"one\n2\nthree\n"})

    for applier in (apply_git, apply_patch_fuzz):
        attempt = applier(case)
        assert attempt is not None
        assert outcome(case, attempt) is Outcome.RIGHT


def test_git_and_patch_get_blocks_as_a_diff() -> None:
    block = "a.txt\n<<<<<<< SEARCH\none\ntwo\n=======\none\n2\n>>>>>>> REPLACE\n"
    truth = {"a.txt": b"one\n2\nthree\n"}
    case = Case("id", "c", "k", "blocks", block, _FILES, Wanted.APPLY, truth)

    assert apply_ours(case).changed == truth
    for applier in (apply_git, apply_patch_fuzz):
        attempt = applier(case)
        assert attempt is not None
        assert attempt.changed == truth


def test_the_oracle_takes_one_place_only() -> None:
    hunks = oracle.read_diff("@@ -9 +9 @@\n two\n-three\n+3\n")

    assert oracle.intended("one\n  two\nthree\n", hunks).text == "one\n  two\n3\n"
    assert oracle.intended("two\nthree\ntwo\nthree\n", hunks).text is None
    assert oracle.intended("four\n", hunks).text is None


# ------------------------------------------------------------------------------------ perturbations


def test_a_draft_rebuilds_the_change() -> None:
    made = draft(Change("id", "till.py", TILL, TILL_FIXED))

    assert made is not None
    text = TILL
    for piece in made.pieces:
        old, new = ("".join(f"{line}\n" for line in side) for side in (piece.old, piece.new))
        assert text.count(old) == 1
        text = text.replace(old, new)
    assert text == TILL_FIXED


def test_what_a_tier_can_explain_is_not_refused(score: Score) -> None:
    missed = [row.case.id for row in score.of(OURS) if row.outcome is Outcome.MISSED]

    assert missed == []


def test_cases_are_the_same_every_time_and_cover_every_perturbation() -> None:
    first, second = list(written_cases()), list(written_cases())

    assert first == second
    assert {p.name for p in PERTURBATIONS} <= {case.kind for case in first}
    assert len({case.id for case in first}) == len(first)


# ------------------------------------------------------------------------------------------ fuzzing


@pytest.mark.slow
def test_mutated_replies_meet_nothing_but_declared_failures() -> None:
    tally = fuzz(5000, seed=7)

    assert tally.findings == []
    assert tally.outcomes["applied"] > 50
    assert tally.cases == 5000


def test_mutations_depend_on_the_seed_alone() -> None:
    replies = seeds()

    once = [mutated(replies, random.Random(number)) for number in range(50)]
    assert once == [mutated(replies, random.Random(number)) for number in range(50)]
    assert len(set(once)) > 40


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\nb\nc\n", b"a\nB\nc\n"),
        (b"a\nb", b"a\nb\n"),
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
        (None, b"new\n"),
        (b"old\n", None),
        (None, b""),
        (b"", None),
        (b"x\n" * 40, b"x\n" * 20 + b"y\n" + b"x\n" * 20),
    ],
)
def test_the_strict_applier_reads_our_diffs(before: bytes | None, after: bytes | None) -> None:
    files = {"dir/a file.txt": before} if before is not None else {}
    diff = unified_diff([FileChange("dir/a file.txt", before, after)])

    expected = {"dir/a file.txt": after} if after is not None else {}
    assert strict_patch(diff, files) == expected


def test_the_strict_applier_believes_nothing_that_is_not_so() -> None:
    diff = unified_diff([FileChange("a", b"a\nb\nc\n", b"a\nB\nc\n")])

    with pytest.raises(BadDiff):
        strict_patch(diff, {"a": b"a\nb \nc\n"})
    with pytest.raises(BadDiff):
        strict_patch(diff.replace(b"-1,3 +1,3", b"-1,4 +1,3"), {"a": b"a\nb\nc\n"})
    with pytest.raises(BadDiff):
        strict_patch(diff.replace(b"-1,3", b"-2,3"), {"a": b"a\nb\nc\n"})
