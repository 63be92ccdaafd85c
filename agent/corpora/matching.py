"""Which chunks of a ranking are results at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.retrieval.identifiers import WORD

if TYPE_CHECKING:
    from agent.types import Ranking, ScoredChunk


def has_words(query: str) -> bool:
    """Whether there is anything in a query to search for."""
    return WORD.search(query) is not None


def matching(query: str, ranking: Ranking) -> tuple[ScoredChunk, ...]:
    """What anything speaks for, in order.

    A ranking orders all chunks: those without a reason, and all for a query without a word, by
    what is true of them whatever is asked.
    """
    if not has_words(query):
        return ()
    return tuple(hit for hit in ranking.chunks if hit.score != 0.0 or hit.reasons)
