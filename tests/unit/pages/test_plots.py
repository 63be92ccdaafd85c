from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.pages.plots import (
    BARS_BOTTOM,
    BARS_TOP,
    CURVE_BOTTOM,
    CURVE_TOP,
    LEFT,
    RIGHT,
    WIDTH,
    distribution,
    waterfall,
)
from agent.pages.statistics import sample_of
from agent.pages.words import dollars

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
