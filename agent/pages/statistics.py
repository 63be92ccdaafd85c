"""Quantiles, histograms and cumulative distributions of a few thousand numbers, in plain Python."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MOST_BINS = 24  # of a histogram: more are noise at the width of a phone
_FEWEST_BINS = 4

# From here on equal steps show one bar at the left and nothing else.
_LOGARITHMIC = 50.0
_NO_MEASURE = 1e9  # and a spread beyond this is that of numbers that are next to nothing


@dataclass(frozen=True, slots=True)
class Sample:
    """Numbers, sorted. All are finite and not negative."""

    values: tuple[float, ...]

    def __bool__(self) -> bool:
        return bool(self.values)

    def quantile(self, share: float) -> float:
        """Linear between the neighbours: definition 7 of Hyndman and Fan (1996)."""
        place = share * (len(self.values) - 1)
        below = math.floor(place)
        above = min(below + 1, len(self.values) - 1)
        low, high = self.values[below], self.values[above]
        return low + (high - low) * (place - below)

    def share_up_to(self, value: float) -> float:
        """The share of numbers not above `value`: the empirical distribution function."""
        return bisect_right(self.values, value) / len(self.values)


@dataclass(frozen=True, slots=True)
class Bin:
    """How many numbers lie in [start, stop); the last bin holds `stop` too."""

    start: float
    stop: float
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bins side by side. `logarithmic`: each is as many times as wide as the one before."""

    bins: tuple[Bin, ...]
    logarithmic: bool

    @property
    def highest(self) -> int:
        """The largest count."""
        return max(one.count for one in self.bins)


def sample_of(values: Iterable[float | None]) -> Sample:
    """The numbers among `values`, sorted."""
    return Sample(tuple(sorted(v for v in values if v is not None and 0 <= v < math.inf)))


def histogram(sample: Sample) -> Histogram:
    """Bins at round numbers, in equal steps, or in equal ratios where the numbers spread widely.

    The number of bins is that of Rice's rule, twice the cube root, within bounds. Raises ValueError
    for no number.
    """
    if not sample:
        raise ValueError("a histogram needs a number")
    wanted = min(_MOST_BINS, max(_FEWEST_BINS, math.ceil(2 * len(sample.values) ** (1 / 3))))
    low, high = sample.values[0], sample.values[-1]
    logarithmic = low * _NO_MEASURE > high and high / low >= _LOGARITHMIC
    edges = _ratios(low, high) if logarithmic else _steps(low, high, wanted)
    return Histogram(_counted(sample, edges), logarithmic)


def round_step(span: float, parts: int) -> float:
    """The smallest of 1, 2, 5 times a power of ten that covers `span` in so many parts."""
    raw = max(span, 1e-12) / parts
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))


def _steps(low: float, high: float, wanted: int) -> list[float]:
    """Edges at multiples of a round step, from below `low` to above `high`."""
    span = high - low
    step = round_step(span if span > 0 else max(high, 1e-6) / 2, wanted)
    first = math.floor(low / step)
    last = max(first + 1, math.ceil(high / step))
    return [index * step for index in range(first, last + 1)]


def _ratios(low: float, high: float) -> list[float]:
    """Edges at 1, 2 and 5 times the powers of ten; at powers of ten alone over many of them."""
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
