"""Packs the best chunks of a ranking into a token budget.

Greedy in rank order: a chunk that does not fit is passed over (or, ranked very high, shown in
part) and the next one is tried. A share of the budget is kept for support (see
`agent.context.support`); what support does not use goes to further chunks. The count is exact: it
is taken from the rendered text.
"""

from __future__ import annotations

from agent.context.options import PackingOptions
from agent.context.views import FileViews
from agent.context.selection import Selection
from agent.context.support import SupportFinder
from agent.protocols import Chunker, Snapshot, TokenCounter
from agent.types import ContextBundle, Problem, Ranking

__all__ = ["PackingOptions", "pack"]


def pack(
    problem: Problem,
    ranking: Ranking,
    snapshot: Snapshot,
    counter: TokenCounter,
    options: PackingOptions | None = None,
    *,
    chunker: Chunker | None = None,
) -> ContextBundle:
    """Choose and render the context. Same input, same bytes.

    The ranking must be of this snapshot. With a `chunker`, signatures of definitions that the
    ranking lacks can be shown too. Raises KeyError for a chunk of a file the snapshot lacks.
    """
    options = options or PackingOptions()
    views = FileViews(snapshot)
    finder = SupportFinder(ranking, snapshot, views, chunker)
    selection = Selection(problem, views, finder, counter, options)
    support_tokens = int(options.limit * options.support_share)

    ranked = list(enumerate(ranking.chunks[: options.depth]))
    selection.choose(ranked, options.limit - support_tokens, parts=True)
    if support_tokens:
        selection.support(min(options.limit, selection.used + support_tokens))
    selection.choose(selection.over_budget(), options.limit, parts=False)
    if support_tokens:
        selection.support_rest(options.limit)
    return selection.bundle(len(ranking.chunks))
