"""The rows of an evaluation, and the quality of rankings and contexts.

Acc@k, as LocAgent and SweRank define it, is 1 if min(k, number of gold) of the first k are gold,
else 0. MRR is 1 / rank of the first gold file. Precision@k is the share of the first k functions
that are gold, hit@k is 1 if any is. Context recall is 1 if the packed context shows every line of
every gold function, edit recall is 1 if it shows every line that the gold patch removes and a
neighbour of each insertion. Both are also computed for the same ranking at further budgets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from agent.evaluation.retrieval.gold import Gold

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ContextRange(_Row):
    """A range of lines of a file, 1-based and inclusive."""

    path: str
    start: int
    end: int


class BudgetContext(_Row):
    """The lines shown within a token budget, as in `RetrievalRow.context`."""

    budget: int
    context: tuple[ContextRange, ...]
    context_tokens: int


class RetrievalRow(_Row):
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
NAMED_RANK = 10  # of precision and hit
MRR = "file MRR"
PRECISION = f"function precision@{NAMED_RANK}"
HIT = f"function hit@{NAMED_RANK}"
RECALL = "context recall"
EDIT_RECALL = "edit recall"
METRICS = (
    *(f"file @{k}" for k in FILE_RANKS),
    MRR,
    *(f"function @{k}" for k in FUNCTION_RANKS),
    PRECISION,
    HIT,
    RECALL,
    EDIT_RECALL,
)


@dataclass(frozen=True, slots=True)
class Score:
    """The metrics of one instance. Metrics that do not apply are absent.

    `tokens_needed` are those of the smallest context that shows every edit, None without any edit,
    infinite if no measured context does.
    """

    repo: str
    values: Mapping[str, float]
    seconds: float
    context_tokens: int
    tokens_needed: float | None = None


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group of instances, with the metrics that apply to any of them."""

    instances: int
    metrics: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class RetrievalReport:
    """The figures: overall and by project.

    `tokens_needed_median` is None where no measured context is large enough for half of the issues.
    """

    overall: GroupSummary
    by_project: Mapping[str, GroupSummary]
    seconds_median: float
    seconds_p95: float
    context_tokens_median: float
    tokens_needed_median: float | None = None


def score(row: RetrievalRow) -> Score:
    """Score one row, and the contexts of its ranking at further budgets."""
    gold = row.gold
    values = {f"file @{k}": accuracy_at(row.files, gold.files, k) for k in FILE_RANKS}
    values[MRR] = reciprocal_rank(row.files, gold.files)
    contexts = [("", row.context, row.context_tokens)]
    contexts += [(f", {b.budget:,}", b.context, b.context_tokens) for b in row.budgets]
    if gold.functions:
        values |= _function_values(row.functions, gold.functions)
        values |= {f"{RECALL}{at}": context_recall(shown, gold) for at, shown, _ in contexts}
    needed = None
    if gold.edits:
        recalls = {f"{EDIT_RECALL}{at}": edit_recall(shown, gold) for at, shown, _ in contexts}
        sizes = zip(recalls.values(), contexts, strict=True)
        needed = min((size for recall, (*_, size) in sizes if recall), default=np.inf)
        values |= recalls
    return Score(row.repo, values, row.seconds, row.context_tokens, needed)


def _function_values(found: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    values = {f"function @{k}": accuracy_at(found, gold, k) for k in FUNCTION_RANKS}
    right = len(set(gold).intersection(list(dict.fromkeys(found))[:NAMED_RANK]))
    return values | {PRECISION: right / NAMED_RANK, HIT: float(right > 0)}


def accuracy_at(found: Sequence[str], gold: Sequence[str], k: int) -> float:
    """Return 1.0 if min(k, distinct gold) of the first k distinct found are gold, else 0.0."""
    wanted = set(gold)
    first = list(dict.fromkeys(found))[:k]
    return float(len(wanted.intersection(first)) == min(k, len(wanted)))


def reciprocal_rank(found: Sequence[str], gold: Sequence[str]) -> float:
    """Return 1 / rank of the first found that is gold, 0.0 if none is."""
    wanted = set(gold)
    ranks = (rank for rank, name in enumerate(dict.fromkeys(found), start=1) if name in wanted)
    return 1.0 / next(ranks, np.inf)


def context_recall(context: Iterable[ContextRange], gold: Gold) -> float:
    """Return 1.0 if every line of every gold function is shown, else 0.0."""
    shown = _shown(context)
    return float(
        all(place.lines and shown[place.path].issuperset(place.lines) for place in gold.places)
    )


def edit_recall(context: Iterable[ContextRange], gold: Gold) -> float:
    """Return 1.0 if every edit is at a shown line, else 0.0."""
    shown = _shown(context)
    return float(not any(shown[edit.path].isdisjoint(edit.lines) for edit in gold.edits))


def _shown(context: Iterable[ContextRange]) -> defaultdict[str, set[int]]:
    shown: defaultdict[str, set[int]] = defaultdict(set)
    for part in context:
        shown[part.path].update(range(part.start, part.end + 1))
    return shown


def summarise(scores: Sequence[Score]) -> RetrievalReport:
    """Return all figures. `scores` must not be empty."""
    seconds = np.array([score.seconds for score in scores])
    needed = [score.tokens_needed for score in scores if score.tokens_needed is not None]
    enough = float(np.median(needed)) if needed else np.inf
    return RetrievalReport(
        overall=_summary(scores),
        by_project=_by_project(scores),
        seconds_median=float(np.median(seconds)),
        seconds_p95=float(np.percentile(seconds, 95)),
        context_tokens_median=float(np.median([score.context_tokens for score in scores])),
        tokens_needed_median=enough if np.isfinite(enough) else None,
    )


def _by_project(scores: Sequence[Score]) -> Mapping[str, GroupSummary]:
    groups: defaultdict[str, list[Score]] = defaultdict(list)
    for one in scores:
        groups[one.repo].append(one)
    return {name: _summary(groups[name]) for name in sorted(groups)}


def _summary(scores: Sequence[Score]) -> GroupSummary:
    names = dict.fromkeys((*METRICS, *(name for score in scores for name in score.values)))
    found = {
        name: bootstrap_mean(np.array([score.values.get(name, np.nan) for score in scores]))
        for name in names
    }
    known = {name: interval for name, interval in found.items() if interval is not None}
    return GroupSummary(len(scores), known)


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
