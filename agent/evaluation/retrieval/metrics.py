"""The rows of an evaluation, and the quality of rankings and contexts.

Acc@k, as LocAgent and SweRank define it, is 1 if min(k, number of gold) of the first k are gold,
else 0. MRR is 1 / rank of the first gold file. Context recall is 1 if the packed context shows
every line of every gold function, edit recall is 1 if it shows every edit of the gold patch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, Field

from agent.evaluation.retrieval.gold import Gold

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ContextRange(BaseModel, frozen=True, extra="forbid"):
    """A range of lines of a file, 1-based and inclusive."""

    path: str
    start: int
    end: int


class BudgetContext(BaseModel, frozen=True, extra="forbid"):
    """The lines shown within a token budget, as in `RetrievalRow.context`."""

    budget: int
    context: tuple[ContextRange, ...]
    context_tokens: int


class RetrievalRow(BaseModel, frozen=True, extra="forbid"):
    """The result of retrieval for one instance, best first. `seconds` is for ranking and packing.

    `functions` has the 100 best. `context` has all lines that are shown, and no elided one.
    `budgets` has the same ranking packed into further budgets.
    """

    instance_id: str = Field(min_length=1)
    files: tuple[str, ...]
    functions: tuple[str, ...]
    context: tuple[ContextRange, ...]
    context_tokens: int
    seconds: float
    repo: str
    gold: Gold
    budgets: tuple[BudgetContext, ...] = ()


FILE_RANKS = (1, 3, 5, 10)
FUNCTION_RANKS = (5, 10, 20)


def score(row: RetrievalRow) -> dict[str, float]:
    """Return the metrics of one row by name, those of its contexts also at the further budgets.

    NaN stands for a metric that does not apply.
    """
    gold = row.gold
    values = {f"file @{k}": accuracy_at(row.files, gold.files, k) for k in FILE_RANKS}
    values["file MRR"] = reciprocal_rank(row.files, gold.files)
    values |= {
        f"function @{k}": accuracy_at(row.functions, gold.functions, k) for k in FUNCTION_RANKS
    }
    contexts = {"": row.context} | {f", {b.budget:,}": b.context for b in row.budgets}
    values |= {f"context recall{at}": context_recall(c, gold) for at, c in contexts.items()}
    values |= {f"edit recall{at}": edit_recall(c, gold) for at, c in contexts.items()}
    return values


def accuracy_at(ranked: Sequence[str], gold: Sequence[str], k: int) -> float:
    """Return 1.0 if min(k, distinct gold) of the first k distinct ranked are gold, else 0.0."""
    if not gold:
        return np.nan
    names = set(gold)
    first = list(dict.fromkeys(ranked))[:k]
    return float(len(names.intersection(first)) == min(k, len(names)))


def reciprocal_rank(ranked: Sequence[str], gold: Sequence[str]) -> float:
    """Return 1 / rank of the first ranked that is gold, 0.0 if none is."""
    ranks = (rank for rank, name in enumerate(dict.fromkeys(ranked), start=1) if name in gold)
    return 1.0 / next(ranks, np.inf)


def context_recall(context: Iterable[ContextRange], gold: Gold) -> float:
    """Return 1.0 if every line of every gold function is shown, else 0.0."""
    if not gold.functions:
        return np.nan
    shown = _shown(context)
    return float(
        all(place.lines and shown[place.path].issuperset(place.lines) for place in gold.places)
    )


def edit_recall(context: Iterable[ContextRange], gold: Gold) -> float:
    """Return 1.0 if every edit is at a shown line, else 0.0."""
    if not gold.edits:
        return np.nan
    shown = _shown(context)
    return float(not any(shown[edit.path].isdisjoint(edit.lines) for edit in gold.edits))


def _shown(context: Iterable[ContextRange]) -> defaultdict[str, set[int]]:
    shown: defaultdict[str, set[int]] = defaultdict(set)
    for part in context:
        shown[part.path].update(range(part.start, part.end + 1))
    return shown


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean of `count` values and its 95% interval."""

    mean: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class RetrievalReport:
    """The figures, without metrics that apply to no instance."""

    metrics: Mapping[str, Interval]
    seconds_median: float
    seconds_p95: float
    context_tokens_median: float


def summarise(rows: Sequence[RetrievalRow]) -> RetrievalReport:
    """Return all figures. `rows` must not be empty."""
    scores = [score(row) for row in rows]
    intervals = {
        name: bootstrap_mean(np.array([values[name] for values in scores])) for name in scores[0]
    }
    seconds = np.array([row.seconds for row in rows])
    return RetrievalReport(
        metrics={name: value for name, value in intervals.items() if value is not None},
        seconds_median=float(np.median(seconds)),
        seconds_p95=float(np.percentile(seconds, 95)),
        context_tokens_median=float(np.median([row.context_tokens for row in rows])),
    )


SEED = 20_240_607
RESAMPLES = 1000
_TAIL = 2.5  # percent on each side: a 95% interval


def bootstrap_mean(values: NDArray[np.float64]) -> Interval | None:
    """Return mean and percentile-bootstrap interval of `values`, float64 (n,), NaN for not known.

    1,000 resamples with a fixed seed make the interval reproducible; for n values the draws are
    always the same, so that runs on the same instances are comparable. Return None without any
    value. Source: Efron & Tibshirani, "An Introduction to the Bootstrap", ch. 13.
    """
    known = values[~np.isnan(values)]
    if not known.size:
        return None
    draws = np.random.default_rng(SEED).integers(known.size, size=(RESAMPLES, known.size))
    low, high = np.percentile(known[draws].mean(axis=1), [_TAIL, 100 - _TAIL])
    return Interval(float(known.mean()), float(low), float(high), int(known.size))
