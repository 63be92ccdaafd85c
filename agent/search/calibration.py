"""The probability that a result is what the query describes, from its place and its scores.

Two logistic regressions, one for code and one for the passages of other corpora. They were fitted
by `training/search_calibration.py`, which says on what; docs/design/search.md has the figures of
projects that were left out. History and memory use the constants of documents and intents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

FOLLOWING = 5
"""Results after a result whose mean score its own is compared with."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """`1 / (1 + exp(-(constant + sum of weight * value)))`."""

    constant: float
    weights: tuple[float, ...]

    def __call__(self, *values: float) -> float:
        """Return the probability for values in the order of the weights."""
        pairs = zip(self.weights, values, strict=True)
        logit = self.constant + sum(weight * value for weight, value in pairs)
        return 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, logit))))


# log(rank), score, score - mean of the following ones, whether it is a function
OF_CODE = Logistic(-5.091, (-1.044, 0.25, 1.01, 1.848))

# log(rank), share of the most BM25 that the query can get, share - mean of the following ones
OF_PASSAGES = Logistic(-1.348, (-1.536, 1.425, 2.344))


def code_values(
    scores: Sequence[float], functions: Sequence[bool]
) -> list[tuple[float, float, float, float]]:
    """Return the values of `OF_CODE` for the results of a ranking, best first."""
    return [
        (*values, float(function))
        for values, function in zip(passage_values(scores), functions, strict=True)
    ]


def passage_values(scores: Sequence[float]) -> list[tuple[float, float, float]]:
    """Return the values of `OF_PASSAGES` for the results of a corpus, best first."""
    values = []
    for at, score in enumerate(scores):
        after = scores[at + 1 : at + 1 + FOLLOWING]
        ahead = score - sum(after) / len(after) if after else 0.0
        values.append((math.log(at + 1), score, ahead))
    return values


def code_relevance(scores: Sequence[float], functions: Sequence[bool]) -> list[float]:
    """Return the probability of each result of a ranking. It never rises from rank to rank."""
    return _falling(OF_CODE(*values) for values in code_values(scores, functions))


def passage_relevance(matched: Sequence[float]) -> list[float]:
    """Return the probability of each result of a corpus. It never rises from rank to rank."""
    return _falling(OF_PASSAGES(*values) for values in passage_values(matched))


def _falling(probabilities: Iterable[float]) -> list[float]:
    return list(accumulate(probabilities, min))
