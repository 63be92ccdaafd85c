"""Plots as numbers: where bars, lines and labels stand. The templates draw them as SVG.

Coordinates are those of the SVG's view box: x to the right, y downwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from agent.pages.statistics import Histogram, Sample, histogram, round_step

WIDTH, HEIGHT = 410.0, 268.0  # right of RIGHT: half of the last label
LEFT, RIGHT = 44.0, 370.0
BARS_TOP, BARS_BOTTOM = 10.0, 118.0
CURVE_TOP, CURVE_BOTTOM = 142.0, 226.0

_TICKS = 4  # labels of an axis that a phone's width can hold
_QUANTILES = ((0.0, "least"), (0.25, "25%"), (0.5, "median"), (0.75, "75%"), (0.9, "90%"),
              (1.0, "most"))  # fmt: skip
_MOST_POINTS = 300  # of the curve: more than its pixels would only make the file larger


@dataclass(frozen=True, slots=True)
class Bar:
    """One bin. `label` is its tooltip."""

    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a place of an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram above the cumulative distribution of the same numbers, on one axis.

    `curve` are the points of the SVG polyline, a step function; `median` its x, and `figures` the
    quantiles as (name, value) in words.
    """

    name: str
    title: str
    unit: str
    number: int
    logarithmic: bool
    bars: tuple[Bar, ...]
    curve: Markup
    median: float
    x_ticks: tuple[Tick, ...]
    count_ticks: tuple[Tick, ...]
    share_ticks: tuple[Tick, ...]
    figures: tuple[tuple[str, str], ...]


def distribution(
    name: str,
    title: str,
    unit: str,
    sample: Sample,
    words: Callable[[float], str],
    short: Callable[[float], str],
) -> Distribution:
    """The plot of at least one number. `words` writes a value with its unit, `short` on axes."""
    found = histogram(sample)
    x = _axis(found)
    top = found.highest
    return Distribution(
        name=name,
        title=title,
        unit=unit,
        number=len(sample.values),
        logarithmic=found.logarithmic,
        bars=_bars(found, x, short),
        curve=_curve(sample, x),
        median=_round(x(sample.quantile(0.5))),
        x_ticks=_x_ticks(found, x, short),
        count_ticks=_count_ticks(top),
        share_ticks=tuple(Tick(_curve_y(s), f"{s:.0%}") for s in (0.0, 0.5, 1.0)),
        figures=tuple((label, words(sample.quantile(s))) for s, label in _QUANTILES),
    )


def _axis(found: Histogram) -> Callable[[float], float]:
    """Value to x."""
    low, high = found.bins[0].start, found.bins[-1].stop
    scale = math.log10 if found.logarithmic else float
    begin, end = scale(low), scale(high)
    return lambda value: LEFT + (RIGHT - LEFT) * (scale(value) - begin) / (end - begin)


def _bars(
    found: Histogram, x: Callable[[float], float], words: Callable[[float], str]
) -> tuple[Bar, ...]:
    height = (BARS_BOTTOM - BARS_TOP) / found.highest
    return tuple(
        Bar(
            _round(x(one.start) + 0.5),
            _round(BARS_BOTTOM - one.count * height),
            _round(max(0.5, x(one.stop) - x(one.start) - 1)),
            _round(one.count * height),
            f"{words(one.start)} to {words(one.stop)}: {one.count:,}",
        )
        for one in found.bins
        if one.count
    )


def _curve(sample: Sample, x: Callable[[float], float]) -> Markup:
    """The steps of the distribution function, at no more than _MOST_POINTS values."""
    values = sorted(set(sample.values))
    every = max(1, math.ceil(len(values) / _MOST_POINTS))
    kept = sorted({*values[::every], values[-1]})
    points = [(LEFT, CURVE_BOTTOM)]
    for value in kept:
        points += ((x(value), points[-1][1]), (x(value), _curve_y(sample.share_up_to(value))))
    points.append((RIGHT, CURVE_TOP))
    return Markup(" ").join(
        Markup("{},{}").format(f"{_round(px):g}", f"{_round(py):g}") for px, py in points
    )


def _curve_y(share: float) -> float:
    return CURVE_BOTTOM - share * (CURVE_BOTTOM - CURVE_TOP)


def _x_ticks(
    found: Histogram, x: Callable[[float], float], words: Callable[[float], str]
) -> tuple[Tick, ...]:
    edges = [one.start for one in found.bins] + [found.bins[-1].stop]
    every = max(1, math.ceil((len(edges) - 1) / _TICKS))
    return tuple(Tick(_round(x(edge)), words(edge)) for edge in edges[::every])


def _count_ticks(top: int) -> tuple[Tick, ...]:
    step = max(1, round(round_step(top, _TICKS)))
    height = BARS_BOTTOM - BARS_TOP
    return tuple(
        Tick(_round(BARS_BOTTOM - height * count / top), f"{count:,}")
        for count in range(0, top + 1, step)
    )


@dataclass(frozen=True, slots=True)
class Beam:
    """One stage of a run's time. `start` and `seconds` in seconds, `x` and `width` in percent."""

    name: str
    start: float
    seconds: float
    summary: str
    x: float
    width: float


def waterfall(stages: Sequence[tuple[str, float, str]]) -> tuple[Beam, ...]:
    """Stages (name, seconds, summary) one after the other, as shares of the whole."""
    whole = sum(seconds for _, seconds, _ in stages) or 1.0
    beams, start = [], 0.0
    for name, seconds, summary in stages:
        x, width = 100 * start / whole, max(0.3, 100 * seconds / whole)
        beams.append(Beam(name, start, seconds, summary, _round(min(x, 99.7)), _round(width)))
        start += seconds
    return tuple(beams)


def _round(value: float) -> float:
    return round(value, 2)
