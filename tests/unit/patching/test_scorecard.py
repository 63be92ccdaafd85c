"""Altered edits of our own texts: each is applied as meant, or refused."""

from __future__ import annotations

import pytest

from benchmarks.patching.cases import Outcome
from benchmarks.patching.scorecard import Row, explain, run
from benchmarks.patching.written import written_cases


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return run(written_cases())


@pytest.mark.parametrize("outcome", [Outcome.WRONG, Outcome.MISSED, Outcome.UNJUDGED])
def test_no_edit_is_applied_wrongly_or_refused_without_need(
    rows: list[Row], outcome: Outcome
) -> None:
    assert [explain(row) for row in rows if row.outcome is outcome] == []


@pytest.mark.parametrize(
    ("kind", "outcome"), [("none", Outcome.RIGHT), ("place occurs twice", Outcome.REFUSED)]
)
def test_shapes_agree(rows: list[Row], kind: str, outcome: Outcome) -> None:
    outcomes = {row.case.shape: row.outcome for row in rows if row.case.kind == kind}

    assert outcomes.keys() >= {"json", "blocks", "diff", "envelope"}
    assert set(outcomes.values()) == {outcome}
