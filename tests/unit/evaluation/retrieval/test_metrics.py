from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.evaluation.retrieval.gold import Gold, GoldEdit, GoldLines
from agent.evaluation.retrieval.metrics import (
    METRICS,
    BudgetContext,
    ContextRange,
    Interval,
    RetrievalRow,
    accuracy_at,
    bootstrap_mean,
    context_recall,
    edit_recall,
    reciprocal_rank,
    score,
    summarise,
)

GOLD = Gold(
    files=("a.py", "b.py"),
    functions=("a.py:f", "b.py:C.m"),
    places=(GoldLines(path="a.py", lines=(1, 2, 4)), GoldLines(path="b.py", lines=(10, 11))),
    edits=(GoldEdit(path="a.py", lines=(2,)), GoldEdit(path="c.py", lines=(7, 9))),
)


def row(name: str = "i", gold: Gold = GOLD, **known: object) -> RetrievalRow:
    blank = {
        "files": (), "functions": (), "context": (), "context_tokens": 10, "seconds": 1.0,
        "repo": "o/p", "gold": gold,
    }  # fmt: skip
    return RetrievalRow.model_validate({"instance_id": name, **blank, **known})


def shown(*ranges: tuple[str, int, int]) -> tuple[ContextRange, ...]:
    return tuple(ContextRange(path=path, start=start, end=end) for path, start, end in ranges)


@pytest.mark.parametrize(
    ("found", "gold", "k", "expected"),
    [
        (["a", "x"], ["a"], 1, 1.0),
        (["x", "a"], ["a"], 1, 0.0),
        (["a", "b"], ["a", "b"], 1, 1.0),  # one of two is all that one place can hold
        (["a", "x", "b"], ["a", "b"], 2, 0.0),
        (["a", "x", "b"], ["a", "b"], 3, 1.0),
        (["a", "a", "b"], ["a", "b"], 2, 1.0),  # repeated ones take no place
        ([], ["a"], 5, 0.0),
        (["a"], ["a", "a"], 5, 1.0),
    ],
)
def test_accuracy(found: list[str], gold: list[str], k: int, expected: float) -> None:
    assert accuracy_at(found, gold, k) == expected


@given(st.permutations("abcdefgh"), st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_accuracy_at_the_whole_list_is_one(found: list[str], gold: set[str]) -> None:
    assert accuracy_at(found, sorted(gold), len(found)) == 1.0
    assert accuracy_at(found, sorted(gold), 1) == float(found[0] in gold)


def test_reciprocal_rank() -> None:
    assert reciprocal_rank(["x", "x", "b", "a"], ["a", "b"]) == 0.5
    assert reciprocal_rank(["x"], ["a"]) == 0.0


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (shown(("a.py", 1, 4), ("b.py", 10, 11)), 1.0),
        (shown(("a.py", 1, 2), ("b.py", 9, 12), ("a.py", 4, 4)), 1.0),  # line 3 is blank
        (shown(("a.py", 1, 4), ("b.py", 10, 10)), 0.0),  # cut
        (shown(("a.py", 1, 4)), 0.0),
        ((), 0.0),
    ],
)
def test_context_recall(context: tuple[ContextRange, ...], expected: float) -> None:
    assert context_recall(context, GOLD) == expected


def test_a_function_of_unknown_place_is_never_in_the_context() -> None:
    gold = Gold(files=("a.py",), functions=("a.py:f",), places=(GoldLines(path="a.py", lines=()),))
    assert context_recall(shown(("a.py", 1, 99)), gold) == 0.0


def test_a_score_has_every_metric() -> None:
    found = score(
        row(
            files=("x.py", "a.py", "b.py"),
            functions=("b.py:C.m", *(f"x.py:f{n}" for n in range(8)), "a.py:f"),
            context=shown(("a.py", 1, 4), ("b.py", 1, 20)),
        ),
    )
    assert found.values == {
        "file @1": 0.0,
        "file @3": 1.0,
        "file @5": 1.0,
        "file @10": 1.0,
        "file MRR": 0.5,
        "function @5": 0.0,
        "function @10": 1.0,
        "function @20": 1.0,
        "function precision@10": 0.2,
        "function hit@10": 1.0,
        "context recall": 1.0,
        "edit recall": 0.0,
    }
    assert tuple(found.values) == METRICS


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (shown(("a.py", 2, 2), ("c.py", 9, 9)), 1.0),  # one neighbour of an insertion is enough
        (shown(("a.py", 2, 2), ("c.py", 1, 7)), 1.0),
        (shown(("a.py", 2, 2), ("c.py", 8, 8)), 0.0),
        (shown(("a.py", 3, 9), ("c.py", 7, 9)), 0.0),
        ((), 0.0),
    ],
)
def test_edit_recall(context: tuple[ContextRange, ...], expected: float) -> None:
    assert edit_recall(context, GOLD) == expected


def packed(*contexts: tuple[int, tuple[ContextRange, ...]]) -> RetrievalRow:
    budgets = (BudgetContext(budget=n, context=c, context_tokens=n - 1) for n, c in contexts)
    return row(budgets=tuple(budgets))


def test_the_tokens_until_every_edit_is_shown() -> None:
    enough = shown(("a.py", 2, 2), ("c.py", 9, 9))
    found = score(packed((3000, ()), (6000, enough), (9000, enough)))
    assert found.tokens_needed == 5999
    assert [found.values[f"edit recall, {n:,}"] for n in (3000, 6000, 9000)] == [0.0, 1.0, 1.0]
    never = score(packed((3000, ())))
    assert summarise([found]).tokens_needed_median == 5999
    assert summarise([found, never, never]).tokens_needed_median is None


def test_without_gold_functions_only_files_are_judged() -> None:
    only = Gold(files=("a.py",))
    values = score(row(gold=only, files=("a.py",))).values
    assert set(values) == {name for name in METRICS if name.startswith("file")}
    assert "context recall" not in summarise([score(row(gold=only))]).overall.metrics


def test_groups_by_project() -> None:
    cases = [("o/b", ("a.py", "b.py")), ("o/a", ("x.py",)), ("o/b", ("a.py",))]
    report = summarise(
        [
            score(row(repo=repo, files=files, seconds=float(number)))
            for number, (repo, files) in enumerate(cases, start=1)
        ]
    )
    assert report.overall.instances == 3
    assert list(report.by_project) == ["o/a", "o/b"]
    assert report.by_project["o/b"].metrics["file @1"] == Interval(1.0, 1.0, 1.0, 2)
    assert report.by_project["o/b"].metrics["file @3"].mean == 0.5
    assert report.seconds_median == 2.0
    assert report.seconds_p95 == pytest.approx(2.9)
    assert report.context_tokens_median == 10.0


def test_the_interval_is_that_of_the_mean_and_the_same_each_time() -> None:
    values = np.array([1.0] * 60 + [0.0] * 40 + [np.nan] * 7)
    first = bootstrap_mean(values)
    assert first is not None
    assert (first.mean, first.count) == (0.6, 100)
    # The normal approximation: 0.6 ± 1.96 * sqrt(0.6 * 0.4 / 100).
    assert first.low == pytest.approx(0.504, abs=0.02)
    assert first.high == pytest.approx(0.696, abs=0.02)
    assert bootstrap_mean(values) == first
    assert bootstrap_mean(np.array([np.nan])) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_the_interval_holds_within_the_values(values: list[float]) -> None:
    found = bootstrap_mean(np.array(values))
    assert found is not None
    low, high = min(values) - 1e-9, max(values) + 1e-9
    assert low <= found.low <= found.high <= high
