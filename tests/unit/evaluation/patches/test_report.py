"""Our verdicts beside the outcomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.evaluation.patches import OwnVerdict, Scored, make_report, read_own, share


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [
        # Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_intervals(count: int, total: int, low: float, high: float) -> None:
    interval = share(count, total)

    assert interval.low == pytest.approx(low, abs=1e-4)
    assert interval.high == pytest.approx(high, abs=1e-4)


def test_verdicts_against_outcomes() -> None:
    verified = OwnVerdict(status="accepted", verdict="verified")
    other = OwnVerdict(status="accepted", verdict="not-regressed")
    results = [
        Scored(instance_id="a", outcome="resolved", own=verified),
        Scored(instance_id="b", outcome="unresolved", own=verified),
        Scored(instance_id="c", outcome="resolved", own=other),
        Scored(instance_id="d", outcome="error", own=verified),
        Scored(
            instance_id="e",
            outcome="not-applied",
            own=OwnVerdict(status="not-applied", verdict=None),
        ),
        Scored(
            instance_id="f",
            outcome="resolved",
            own=verified.model_copy(update={"same_patch": False}),
        ),
        Scored(instance_id="g", outcome="resolved"),
    ]
    names = list("abcdefg")
    confusion = make_report(names, names, results, [], 0.0, compared=True).confusion

    assert confusion is not None
    nothing = {"resolved": 0, "unresolved": 0, "not-applied": 0, "empty-patch": 0, "error": 0}
    assert confusion.counts == {
        "verified": {**nothing, "resolved": 1, "unresolved": 1, "error": 1},
        "not-regressed": {**nothing, "resolved": 1},
        "none": {**nothing, "not-applied": 1, "resolved": 1},
    }
    assert confusion.verified_right == share(1, 2)
    assert confusion.other_patches == 1
    assert make_report(names, names, results, [], 0.0).confusion is None


def test_a_verdict_is_of_the_patch_that_lies_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "instances" / "o__a-1"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({"status": "accepted", "verdict": "verified"}))
    (folder / "patch.diff").write_text("the patch\n")

    accepted = OwnVerdict(status="accepted", verdict="verified")
    assert read_own(tmp_path, "o__a-1", "the patch") == accepted
    other = read_own(tmp_path, "o__a-1", "another")
    assert other == accepted.model_copy(update={"same_patch": False})
    assert read_own(tmp_path, "o__a-2", "the patch") is None
    (folder / "result.json").write_text("[]")
    assert read_own(tmp_path, "o__a-1", "the patch") is None
