"""Distributions of a few thousand numbers, and their plots as coordinates.

The templates draw the plots as SVG. Coordinates are those of the view box: x to the right, y down.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

_MOST_BINS = 24  # more bins are unreadable at the width of a phone
_FEWEST_BINS = 4

# From this ratio on, bins of equal width would put almost all values into the first bar.
_LOGARITHMIC = 50.0
_NO_MEASURE = 1e9  # a larger ratio comes from numbers close to 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Sorted numbers, all finite and not negative."""

    values: tuple[float, ...]

    def __bool__(self) -> bool:
        return bool(self.values)

    def quantile(self, share: float) -> float:
        """Interpolate linearly between neighbours: definition 7 of Hyndman and Fan (1996)."""
        place = share * (len(self.values) - 1)
        below = math.floor(place)
        above = min(below + 1, len(self.values) - 1)
        low, high = self.values[below], self.values[above]
        return low + (high - low) * (place - below)

    def share_up_to(self, value: float) -> float:
        """Return the share of numbers <= `value`: the empirical distribution function."""
        return bisect_right(self.values, value) / len(self.values)


@dataclass(frozen=True, slots=True)
class Bin:
    """The count of numbers in [start, stop); the last bin includes `stop`."""

    start: float
    stop: float
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Adjacent bins. `logarithmic`: the ratio of their edges is constant, not the difference."""

    bins: tuple[Bin, ...]
    logarithmic: bool

    @property
    def highest(self) -> int:
        """The largest count of a bin."""
        return max(one.count for one in self.bins)


def sample_of(values: Iterable[float | None]) -> Sample:
    """Return the usable numbers among `values`, sorted."""
    return Sample(tuple(sorted(v for v in values if v is not None and 0 <= v < math.inf)))


def histogram(sample: Sample) -> Histogram:
    """Return bins at round numbers: in equal steps, or in equal ratios for a wide spread.

    The number of bins follows Rice's rule (twice the cube root), within bounds. Raises ValueError
    for an empty sample.
    """
    if not sample:
        raise ValueError("a histogram needs a number")
    wanted = min(_MOST_BINS, max(_FEWEST_BINS, math.ceil(2 * len(sample.values) ** (1 / 3))))
    low, high = sample.values[0], sample.values[-1]
    logarithmic = low * _NO_MEASURE > high and high / low >= _LOGARITHMIC
    edges = _ratios(low, high) if logarithmic else _steps(low, high, wanted)
    return Histogram(_counted(sample, edges), logarithmic)


def round_step(span: float, parts: int) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that covers `span` in `parts` steps."""
    raw = max(span, 1e-12) / parts
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))


def _steps(low: float, high: float, wanted: int) -> list[float]:
    """Return edges at multiples of a round step, from below `low` to above `high`."""
    span = high - low
    step = round_step(span if span > 0 else max(high, 1e-6) / 2, wanted)
    first = math.floor(low / step)
    last = max(first + 1, math.ceil(high / step))
    return [index * step for index in range(first, last + 1)]


def _ratios(low: float, high: float) -> list[float]:
    """Return edges at 1, 2 and 5 times powers of ten, or at powers of ten over a wide range."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= _MOST_BINS // 3 else (1,)
    edges = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    start = max(0, bisect_right(edges, low) - 1)
    stop = next((i for i, edge in enumerate(edges) if edge >= high), len(edges) - 1)
    return edges[start : max(start + 1, stop) + 1]


def _counted(sample: Sample, edges: Sequence[float]) -> tuple[Bin, ...]:
    counts = [0] * (len(edges) - 1)
    for value in sample.values:
        counts[min(len(counts) - 1, max(0, bisect_right(edges, value) - 1))] += 1
    return tuple(
        Bin(start, stop, count)
        for start, stop, count in zip(edges, edges[1:], counts, strict=False)
    )


WIDTH, HEIGHT = 410.0, 268.0  # half of the last label is right of RIGHT
LEFT, RIGHT = 44.0, 370.0
BARS_TOP, BARS_BOTTOM = 10.0, 118.0
CURVE_TOP, CURVE_BOTTOM = 142.0, 226.0

_TICKS = 4  # labels of an axis; more do not fit on a phone
_QUANTILES = ((0.0, "least"), (0.25, "25%"), (0.5, "median"), (0.75, "75%"), (0.9, "90%"),
              (1.0, "most"))  # fmt: skip
_MOST_POINTS = 300  # points of the curve; more would only enlarge the file


@dataclass(frozen=True, slots=True)
class Bar:
    """One bin of a histogram. `label` is its tooltip."""

    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a coordinate of an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram above the cumulative distribution of the same numbers, on one axis.

    `curve` has the points of an SVG polyline, a step function. `median` is the x of the median, and
    `figures` has quantiles as (name, formatted value).
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
    """Plot at least one number. `words` formats a value with its unit, `short` one on an axis."""
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
    """Return the function that maps a value to its x coordinate."""
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
    """Return the steps of the distribution function, at no more than _MOST_POINTS values."""
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
    """One stage of a run. `start` and `seconds` are in seconds, `x` and `width` in percent."""

    name: str
    start: float
    seconds: float
    summary: str
    x: float
    width: float


def waterfall(stages: Sequence[tuple[str, float, str]]) -> tuple[Beam, ...]:
    """Return stages (name, seconds, summary) in sequence, as shares of the total."""
    whole = sum(seconds for _, seconds, _ in stages) or 1.0
    beams, start = [], 0.0
    for name, seconds, summary in stages:
        x, width = 100 * start / whole, max(0.3, 100 * seconds / whole)
        beams.append(Beam(name, start, seconds, summary, _round(min(x, 99.7)), _round(width)))
        start += seconds
    return tuple(beams)


def _round(value: float) -> float:
    return round(value, 2)
