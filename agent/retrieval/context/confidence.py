"""The probability that a context of some size shows every line that has to change.

A logistic model on a few signals of the ranking. `python -m training.completeness train` fits it to
repairs of public projects and prints the constants below. It knows the scores of the learned
ranker; for other rankings there is no probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.locating import LOCATED
from agent.settings import AUTO_CONTEXT, CONTEXT_TOKENS
from agent.types import Ranking
from agent.types.protocols import TokenCounter

CHUNKS = 120
"""Best chunks that the signals are taken from."""

INCOMPLETE_TOKENS = 27_000
"""Tokens that an incomplete context costs later: calls for the code that is missing, repairs and
steps. It is the mean of 11 runs of 28 larger repairs of 2026 whose first reply had no edits (the
median is 14,000).
"""

CONFIDENT = 0.85
SMALL, LARGE = AUTO_CONTEXT[0], 9000
"""An automatic budget is SMALL where that is complete with a probability of CONFIDENT, else LARGE.

On 104 repairs of the tune split, with locating calls, these expect 17,200 tokens a run; 0.8 expects
17,400, 0.9 17,300, and for LARGE 6,000 expects 17,700 and 12,000 17,400.
"""

# Most chunks of a ranking by the learned ranker have a reason with this feature, and none of other
# rankings; see agent.retrieval.ranking.features.
_LEARNED = "base"

_WHOLE = 0.98  # where all code of the repository is shown
_HEADER_TOKENS = 18  # of a block
_SUPPORT_SHARE = 0.1  # of the budget


def signals(scores: Sequence[float], tokens: Sequence[int], limit: int) -> dict[str, float]:
    """Return the named signals of a ranking for a context of at most `limit` tokens.

    `scores` and `tokens`: of the best CHUNKS chunks, at least one, best first. `covered` is the
    share of exp(score) that fits, `gap` how far the first score lies above that of rank 30.
    """
    weights = [math.exp(score - scores[0]) for score in scores]
    room = limit * (1 - _SUPPORT_SHARE)
    covered = 0.0
    for weight, size in zip(weights, tokens, strict=True):
        if size + _HEADER_TOKENS <= room:
            room -= size + _HEADER_TOKENS
            covered += weight
    return {
        "size": math.log(limit / CONTEXT_TOKENS),
        "covered": covered / sum(weights),
        "gap": scores[0] - scores[min(29, len(scores) - 1)],
        "first_tokens": math.log1p(tokens[0]),
    }


BIAS = 0.0503
WEIGHTS: Mapping[str, float] = {
    "size": 0.3075,
    "covered": 2.015,
    "gap": 0.4354,
    "first_tokens": -0.399,
}
"""Fitted to 299 repairs of 16 projects. On projects that it was not fitted to, the Brier score is
0.177; that of the mean is 0.215.
"""


def probability(found: Mapping[str, float]) -> float:
    """Return the probability for these signals."""
    total = BIAS + sum(weight * found[name] for name, weight in WEIGHTS.items())
    return 1.0 / (1.0 + math.exp(-total))


def likely_complete(
    options: PackingOptions, ranking: Ranking, counter: TokenCounter
) -> float | None:
    """Return the probability that the packed context is complete; None where it is not known."""
    return sized(options, ranking, counter.count)[1]


def sized(
    options: PackingOptions, ranking: Ranking, count: Callable[[str], int]
) -> tuple[PackingOptions, float | None]:
    """Return the options with an automatic budget decided, and the probability for the budget.

    A fixed budget stays, and so does the default where no probability is known.
    """
    if options.stop_at_oversized or not _is_known(ranking):
        return options, None
    chunks = ranking.chunks[:CHUNKS]
    tokens = [count(scored.chunk.text) for scored in chunks]
    if not options.automatic:
        return options, _likely(options, ranking, tokens)
    small = replace(options, budget=SMALL)
    likely = _likely(small, ranking, tokens)
    if likely >= CONFIDENT:
        return small, likely
    large = replace(options, budget=LARGE)
    return large, max(likely, _likely(large, ranking, tokens))


def _is_known(ranking: Ranking) -> bool:
    """Whether the scores are those of the learned ranker alone."""
    found = {reason.feature for scored in ranking.chunks[:CHUNKS] for reason in scored.reasons}
    return _LEARNED in found and LOCATED not in found


def _likely(options: PackingOptions, ranking: Ranking, tokens: Sequence[int]) -> float:
    scores = [scored.score for scored in ranking.chunks[: len(tokens)]]
    likely = probability(signals(scores, tokens, options.limit))
    whole = sum(tokens) + _HEADER_TOKENS * len(tokens)
    if ranking.total_chunks <= len(tokens) and whole <= options.limit:
        return max(likely, _WHOLE)
    return likely
