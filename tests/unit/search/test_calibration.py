from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.search.calibration import (
    OF_CODE,
    Logistic,
    code_relevance,
    code_values,
    passage_relevance,
    passage_values,
)


def test_a_logistic_regression() -> None:
    assert Logistic(0.0, ())() == 0.5
    assert Logistic(1.0, (2.0, -1.0))(1.0, 3.0) == 0.5
    assert Logistic(0.0, (1.0,))(math.log(3)) == pytest.approx(0.75)
    assert Logistic(0.0, (1.0,))(-1e9) > 0.0


def test_the_values_compare_a_score_with_those_that_follow() -> None:
    values = passage_values([9.0, 3.0, 1.0, 1.0, 1.0, 1.0, 100.0])
    assert values[0] == (0.0, 9.0, 9.0 - 7.0 / 5)
    assert values[-1] == (math.log(7), 100.0, 0.0)
    assert code_values([1.0], [True]) == [(0.0, 1.0, 0.0, 1.0)]


def test_a_lead_and_a_function_are_more_probable() -> None:
    clear, tied = code_relevance([9.0, 2.0], [True] * 2), code_relevance([9.0, 9.0], [True] * 2)
    assert clear[0] > tied[0]
    assert code_relevance([9.0], [True]) > code_relevance([9.0], [False])
    assert code_relevance([9.0], [True])[0] == OF_CODE(0.0, 9.0, 0.0, 1.0)


@given(st.lists(st.floats(-20, 40), max_size=40))
def test_probabilities_never_rise(scores: list[float]) -> None:
    for found in (code_relevance(scores, [True] * len(scores)), passage_relevance(scores)):
        assert len(found) == len(scores)
        assert all(0.0 < p <= 1.0 for p in found)
        assert found == sorted(found, reverse=True)
