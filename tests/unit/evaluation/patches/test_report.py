"""Our verdicts beside the outcomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.evaluation.patches.report import (
    OwnVerdict,
    PatchOutcome,
    Scored,
    ShareWithInterval,
    confusion,
    read_own,
    share,
)


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
    found = share(count, total)

    assert found.low == pytest.approx(low, abs=1e-4)
    assert found.high == pytest.approx(high, abs=1e-4)


def test_a_share_of_nothing() -> None:
    assert share(0, 0) == ShareWithInterval(count=0, total=0)


def scored(name: str, outcome: PatchOutcome) -> Scored:
    return Scored(instance_id=name, outcome=outcome)


def test_verdicts_against_outcomes() -> None:
    results = [
        scored("a", "resolved"),
        scored("b", "unresolved"),
        scored("c", "resolved"),
        scored("d", "error"),
        scored("e", "not-applied"),
        scored("f", "resolved"),
        scored("g", "resolved"),
    ]
    own = {
        "a": OwnVerdict(status="accepted", verdict="verified"),
        "b": OwnVerdict(status="accepted", verdict="verified"),
        "c": OwnVerdict(status="accepted", verdict="not-regressed"),
        "d": OwnVerdict(status="accepted", verdict="verified"),
        "e": OwnVerdict(status="not-applied", verdict=None),
        "f": OwnVerdict(status="accepted", verdict="verified", same_patch=False),
    }

    found = confusion(results, own)

    nothing = {"resolved": 0, "unresolved": 0, "not-applied": 0, "empty-patch": 0, "error": 0}
    assert found.counts == {
        "verified": {**nothing, "resolved": 1, "unresolved": 1, "error": 1},
        "not-regressed": {**nothing, "resolved": 1},
        "none": {**nothing, "not-applied": 1, "resolved": 1},
    }
    assert found.verified_right == share(1, 2)
    assert found.accepted_right == share(2, 3)
    assert found.resolved_verified == share(1, 2)
    assert found.other_patches == 1


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
