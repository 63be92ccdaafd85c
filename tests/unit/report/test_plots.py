from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.report.plots import (
    BARS_BOTTOM,
    BARS_TOP,
    CURVE_BOTTOM,
    CURVE_TOP,
    LEFT,
    RIGHT,
    WIDTH,
    Sample,
    distribution,
    histogram,
    round_step,
    sample_of,
    waterfall,
)
from agent.report.text import dollars

NUMBERS = st.lists(st.floats(0, 1e9, allow_nan=False), min_size=1, max_size=200)


def test_a_sample_holds_what_is_a_measurement() -> None:
    given_values = [3.0, None, math.nan, math.inf, -1.0, 1.0]
    assert sample_of(given_values) == Sample((1.0, 3.0))


def test_quantiles_are_linear_between_neighbours() -> None:
    sample = sample_of([1.0, 2.0, 3.0, 10.0])
    assert [sample.quantile(share) for share in (0, 0.5, 0.75, 1)] == [1.0, 2.5, 4.75, 10.0]


def test_the_share_up_to_a_value_counts_ties() -> None:
    sample = sample_of([1.0, 1.0, 2.0, 5.0])
    assert [sample.share_up_to(value) for value in (0.5, 1, 4.9, 5)] == [0.0, 0.5, 0.75, 1.0]


@given(NUMBERS)
def test_a_histogram_counts_every_number_once_between_its_edges(values: list[float]) -> None:
    sample = sample_of(values)
    found = histogram(sample)
    assert sum(one.count for one in found.bins) == len(sample.values)
    assert found.bins[0].start <= sample.values[0] * (1 + 1e-9)
    assert found.bins[-1].stop >= sample.values[-1] * (1 - 1e-9)
    assert all(one.start < one.stop for one in found.bins)
    assert len(found.bins) <= 50


def test_wide_spreads_are_logarithmic_and_zero_never_is() -> None:
    assert histogram(sample_of([0.01, 0.02, 9.0])).logarithmic
    assert not histogram(sample_of([0.0, 0.02, 9.0])).logarithmic
    edges = [one.start for one in histogram(sample_of([0.01, 0.02, 9.0])).bins]
    assert edges == pytest.approx([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5])


def test_nothing_has_no_histogram() -> None:
    with pytest.raises(ValueError, match="needs a number"):
        histogram(sample_of([]))


@given(st.floats(1e-6, 1e9), st.integers(1, 50))
def test_a_round_step_covers_the_span(span: float, parts: int) -> None:
    step = round_step(span, parts)
    assert step * parts >= span * (1 - 1e-6)
    assert step / 10 ** math.floor(math.log10(step) + 1e-9) == pytest.approx(
        round(step / 10 ** math.floor(math.log10(step) + 1e-9))
    )


VALUES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=80)


@given(VALUES)
def test_everything_lies_within_the_frame(values: list[float]) -> None:
    plot = distribution("cost", "Cost", "dollars", sample_of(values), dollars, dollars)
    for bar in plot.bars:
        assert LEFT <= bar.x <= RIGHT
        assert bar.x + bar.width <= RIGHT + 1
        assert BARS_TOP - 0.01 <= bar.y <= BARS_BOTTOM
        assert abs(bar.y + bar.height - BARS_BOTTOM) < 0.05
    points = [tuple(map(float, point.split(","))) for point in plot.curve.split(" ")]
    assert points[0] == (LEFT, CURVE_BOTTOM)
    assert points[-1] == (RIGHT, CURVE_TOP)
    assert points == sorted(points, key=lambda point: (point[0], -point[1]))
    assert len(plot.x_ticks) <= 6
    for tick in plot.x_ticks:  # 11 px: no digit is wider than 7
        assert tick.at - 3.5 * len(tick.label) >= 0
        assert tick.at + 3.5 * len(tick.label) <= WIDTH
    assert LEFT - 0.01 <= plot.median <= RIGHT + 0.01


def test_the_tallest_bar_fills_the_height_and_the_figures_name_quantiles() -> None:
    plot = distribution("c", "C", "d", sample_of([1.0, 1.1, 1.2, 4.0]), dollars, dollars)
    assert min(bar.y for bar in plot.bars) == BARS_TOP
    assert plot.figures[2] == ("median", "$1.15")
    assert plot.number == 4


def test_a_waterfall_follows_one_stage_with_the_next() -> None:
    beams = waterfall([("call", 3.0, "one call"), ("apply", 0.0, ""), ("validate", 1.0, "")])
    assert [(b.name, b.start, b.x, b.width) for b in beams] == [
        ("call", 0.0, 0.0, 75.0),
        ("apply", 3.0, 75.0, 0.3),
        ("validate", 3.0, 75.0, 25.0),
    ]
    assert waterfall([]) == ()
    assert waterfall([("call", 0.0, "")])[0].width == 0.3
