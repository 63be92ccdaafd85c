"""How good a ranking and its context are, against what was changed in the end.

Acc@k as LocAgent and SweRank define it: 1 when as many of the first k are right as can be, that is
min(k, number of gold), else 0. MRR: 1 / rank of the first right file. Context recall: 1 when every
line of every function to change is in the packed context; at further budgets, the same of the same
ranking.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.evaluation.bootstrap import Interval, bootstrap_mean
from agent.evaluation.query_kind import KINDS

if TYPE_CHECKING:
    from agent.evaluation.gold import Gold
    from agent.evaluation.rows import BudgetRow, ContextRange, Row

FILE_RANKS = (1, 3, 5, 10)
FUNCTION_RANKS = (5, 10, 20)
MRR = "file MRR"
RECALL = "context recall"
METRICS = (
    *(f"file @{k}" for k in FILE_RANKS),
    MRR,
    *(f"function @{k}" for k in FUNCTION_RANKS),
    RECALL,
)


@dataclass(frozen=True, slots=True)
class Case:
    """What is known of a scored instance whatever is retrieved for it."""

    instance_id: str
    repo: str
    kinds: tuple[str, ...]
    gold: Gold


@dataclass(frozen=True, slots=True)
class Score:
    """One instance under one preset: the value of each metric that applies to it."""

    case: Case
    values: Mapping[str, float]
    seconds: float
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A group of instances under one preset; metrics that apply to none of them are left out."""

    instances: int
    metrics: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Report:
    """One preset: everything, then by project and by kind of query (groups may overlap)."""

    preset: str
    overall: Summary
    by_project: Mapping[str, Summary]
    by_kind: Mapping[str, Summary]
    seconds_median: float
    seconds_p95: float
    context_tokens_median: float


def recall_at(budget: int) -> str:
    """The name of context recall at a further budget of tokens."""
    return f"{RECALL}, {budget:,}"


def score(case: Case, row: Row, further: BudgetRow | None = None) -> Score:
    """Judge one row, and the contexts of its ranking at further budgets."""
    gold = case.gold
    values = {f"file @{k}": accuracy_at(row.files, gold.files, k) for k in FILE_RANKS}
    values[MRR] = reciprocal_rank(row.files, gold.files)
    if gold.functions:
        for k in FUNCTION_RANKS:
            values[f"function @{k}"] = accuracy_at(row.functions, gold.functions, k)
        values[RECALL] = context_recall(row.context, gold)
        for packed in further.budgets if further else ():
            values[recall_at(packed.budget)] = context_recall(packed.context, gold)
    return Score(case, values, row.seconds, row.context_tokens)


def accuracy_at(found: Sequence[str], gold: Sequence[str], k: int) -> float:
    """1.0 when min(k, distinct gold) of the first k distinct found are gold, else 0.0."""
    wanted = set(gold)
    first = list(dict.fromkeys(found))[:k]
    return float(len(wanted.intersection(first)) == min(k, len(wanted)))


def reciprocal_rank(found: Sequence[str], gold: Sequence[str]) -> float:
    """1 / rank of the first found that is gold, 0.0 when none is."""
    wanted = set(gold)
    ranks = (rank for rank, name in enumerate(dict.fromkeys(found), start=1) if name in wanted)
    return 1.0 / next(ranks, np.inf)


def context_recall(context: Iterable[ContextRange], gold: Gold) -> float:
    """1.0 when every line of every gold function is shown, else 0.0."""
    shown: defaultdict[str, set[int]] = defaultdict(set)
    for part in context:
        shown[part.path].update(range(part.start, part.end + 1))
    return float(
        all(place.lines and shown[place.path].issuperset(place.lines) for place in gold.places)
    )


def summarise(preset: str, scores: Sequence[Score]) -> Report:
    """All figures of one preset; `scores` must not be empty."""
    seconds = np.array([score.seconds for score in scores])
    return Report(
        preset=preset,
        overall=_summary(scores),
        by_project=_by(scores, lambda score: (score.case.repo,)),
        by_kind=_by(scores, lambda score: score.case.kinds, order=KINDS),
        seconds_median=float(np.median(seconds)),
        seconds_p95=float(np.percentile(seconds, 95)),
        context_tokens_median=float(np.median([score.context_tokens for score in scores])),
    )


def _by(
    scores: Sequence[Score], keys: Callable[[Score], tuple[str, ...]], order: Sequence[str] = ()
) -> Mapping[str, Summary]:
    """Summaries by key, in `order`, then alphabetically."""
    groups: defaultdict[str, list[Score]] = defaultdict(list)
    for one in scores:
        for key in keys(one):
            groups[key].append(one)
    names = [*(name for name in order if name in groups), *sorted(set(groups) - set(order))]
    return {name: _summary(groups[name]) for name in names}


def _summary(scores: Sequence[Score]) -> Summary:
    names = dict.fromkeys((*METRICS, *(name for score in scores for name in score.values)))
    found = {
        name: bootstrap_mean(np.array([score.values.get(name, np.nan) for score in scores]))
        for name in names
    }
    known = {name: interval for name, interval in found.items() if interval is not None}
    return Summary(len(scores), known)
