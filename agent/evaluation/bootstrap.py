"""Intervals for means of few, dependent-on-luck instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 20_240_607
RESAMPLES = 1000
_TAIL = 2.5  # percent on each side: a 95% interval


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean of `count` values and its 95% interval."""

    mean: float
    low: float
    high: float
    count: int


def bootstrap_mean(values: NDArray[np.float64]) -> Interval | None:
    """Mean and percentile-bootstrap interval of `values`, float64 (n,), NaN for not applicable.

    1,000 resamples with a fixed seed: the same values give the same interval, and of n values the
    same draws are made, so that two presets on the same instances are compared like with like.
    None without any value. Source: Efron & Tibshirani, "An Introduction to the Bootstrap", ch. 13.
    """
    known = values[~np.isnan(values)]
    if not known.size:
        return None
    draws = np.random.default_rng(SEED).integers(known.size, size=(RESAMPLES, known.size))
    low, high = np.percentile(known[draws].mean(axis=1), [_TAIL, 100 - _TAIL])
    return Interval(float(known.mean()), float(low), float(high), int(known.size))
