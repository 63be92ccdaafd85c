from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.evaluation.retrieval import (
    BudgetContext,
    ContextRange,
    Gold,
    GoldLines,
    Interval,
    RetrievalRow,
    bootstrap_mean,
    score,
    summarise,
)

GOLD = Gold(
    files=("a.py", "b.py"),
    functions=("a.py:f", "b.py:C.m"),
    places=(GoldLines(path="a.py", lines=(1, 2, 4)), GoldLines(path="b.py", lines=(10, 11))),
    edits=(GoldLines(path="a.py", lines=(2,)), GoldLines(path="c.py", lines=(7, 9))),
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
    ("files", "gold", "expected"),  # file @1, @3, @5, @10, MRR
    [
        ("a x", "a", [1, 1, 1, 1, 1]),
        ("x a", "a", [0, 1, 1, 1, 0.5]),
        ("a b", "a b", [1, 1, 1, 1, 1]),  # one of two is all that one place can hold
        ("a x y b", "a b", [1, 0, 1, 1, 1]),
        ("x x y a a b", "a b", [0, 0, 1, 1, 1 / 3]),  # repeated ones take no place
        ("", "a", [0, 0, 0, 0, 0]),
        ("a", "a a", [1, 1, 1, 1, 1]),
    ],
)
def test_accuracy_and_reciprocal_rank(files: str, gold: str, expected: list[float]) -> None:
    values = score(row(gold=Gold(files=tuple(gold.split())), files=tuple(files.split())))
    assert list(values.values())[:5] == expected


@pytest.mark.parametrize(
    ("context", "recalls"),  # of functions, of edits
    [
        (shown(("a.py", 1, 4), ("b.py", 10, 11)), (1, 0)),
        (shown(("a.py", 1, 2), ("b.py", 9, 12), ("a.py", 4, 4)), (1, 0)),  # line 3 is blank
        (shown(("a.py", 1, 4), ("b.py", 10, 10)), (0, 0)),  # cut
        (shown(("a.py", 2, 2), ("c.py", 9, 9)), (0, 1)),  # one neighbour of an insertion is enough
        (shown(("a.py", 2, 2), ("c.py", 1, 7)), (0, 1)),
        (shown(("a.py", 2, 2), ("c.py", 8, 8)), (0, 0)),
        (shown(("a.py", 3, 9), ("c.py", 7, 9)), (0, 0)),
        ((), (0, 0)),
    ],
)
def test_recalls_of_a_context_at_each_budget(
    context: tuple[ContextRange, ...], recalls: tuple[float, float]
) -> None:
    further = BudgetContext(budget=3000, context=context, context_tokens=9)
    values = score(row(budgets=(further,)))
    names = ("context recall", "edit recall")
    assert [values[name] for name in names] == [0, 0]
    assert tuple(values[f"{name}, 3,000"] for name in names) == recalls
    assert tuple(score(row(context=context))[name] for name in names) == recalls


def test_a_function_of_unknown_place_is_never_in_the_context() -> None:
    gold = Gold(files=("a.py",), functions=("a.py:f",), places=(GoldLines(path="a.py", lines=()),))
    assert score(row(gold=gold, context=shown(("a.py", 1, 99))))["context recall"] == 0.0


def test_the_report_has_every_metric_that_applies() -> None:
    functions = ("b.py:C.m", *(f"x.py:f{n}" for n in range(8)), "a.py:f")
    whole = row(files=("x.py", "a.py", "b.py"), functions=functions, seconds=1.0)
    only_files = row(gold=Gold(files=("a.py",)), files=("a.py",), seconds=3.0)
    report = summarise([whole, only_files])
    assert {name: (one.mean, one.count) for name, one in report.metrics.items()} == {
        "file @1": (0.5, 2),
        "file @3": (1.0, 2),
        "file @5": (1.0, 2),
        "file @10": (1.0, 2),
        "file MRR": (0.75, 2),
        "function @5": (0.0, 1),
        "function @10": (1.0, 1),
        "function @20": (1.0, 1),
        "context recall": (0.0, 1),
        "edit recall": (0.0, 1),
    }
    assert report.metrics["file @3"] == Interval(1.0, 1.0, 1.0, 2)
    assert (report.seconds_median, report.context_tokens_median) == (2.0, 10.0)
    assert report.seconds_p95 == pytest.approx(2.9)
    assert not any(name.startswith("function") for name in summarise([only_files]).metrics)


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
    interval = bootstrap_mean(np.array(values))
    assert interval is not None
    low, high = min(values) - 1e-9, max(values) + 1e-9
    assert low <= interval.low <= interval.high <= high
