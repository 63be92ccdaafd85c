"""In which order chunks are tried for the context: by how much they promise for their tokens.

A chunk at rank r is the one to change about as 1 / (r + a few) of the time, so that a long function
must rank clearly better than a short one to be worth the room. Of scores only their order is used:
rankers differ in scale, and what is tuned to one is wrong for the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agent.context.counting import PartCounter
from agent.types import ChunkKind, ScoredChunk

Ranked = tuple[int, ScoredChunk]
"""A chunk with its rank, from 0."""

# All constants: chosen with simulated packing of the tune split (239 issues, the `lexical` ranking,
# budgets of 3,000 to 24,000 tokens). Their neighbours (1 to 6, 0.35 to 0.5, 0.01 to 0.1) lie within
# two points of recall of each other: values from the middle, not the best of a noisy grid.
_RANK_OFFSET = 3  # ranks this small are much alike
# Between rank order (0) and tokens at their full price (1, which fills up with one-liners). At the
# same rank, a function to change is longer than others: that is why the price is discounted.
_SIZE_EXPONENT = 0.4
# Header and fence of a block: without them the shortest chunks would look too cheap.
_BLOCK_TOKENS = 18
# Imports, constants and prose share an issue's words, but none was ever the function to change.
# They still come once the functions of similar rank are in: patches do touch them.
_OUTSIDE_OF_FUNCTIONS = 0.1
_OUTSIDE = frozenset({ChunkKind.MODULE, ChunkKind.WINDOW})


def by_worth(ranked: Sequence[Ranked], counter: PartCounter) -> list[Ranked]:
    """The best ranked first whatever its size, then by worth; ties by rank."""
    keyed = [(_key(rank, scored, counter), (rank, scored)) for rank, scored in ranked]
    return [item for _, item in sorted(keyed, key=lambda pair: pair[0])]


def _key(rank: int, scored: ScoredChunk, counter: PartCounter) -> tuple[bool, float, int]:
    return rank > 0, -_worth(rank, scored, counter), rank


def _worth(rank: int, scored: ScoredChunk, counter: PartCounter) -> float:
    tokens = counter.count(scored.chunk.text.strip("\n")) + _BLOCK_TOKENS
    share = _OUTSIDE_OF_FUNCTIONS if scored.chunk.kind in _OUTSIDE else 1.0
    return share / ((rank + _RANK_OFFSET) * math.pow(tokens, _SIZE_EXPONENT))
