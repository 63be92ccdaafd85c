"""The settings of packing."""

from __future__ import annotations

from dataclasses import dataclass

from agent.errors import ConfigurationError

_CHUNKS, _CHUNKS_BUDGET = 30, 6000  # the original system's limit, and the budget it was made for


@dataclass(frozen=True, slots=True)
class PackingOptions:
    """How to fill the budget. Shares are of `limit`.

    Raises ConfigurationError for values out of range.
    """

    budget: int = 6000  # tokens, as in the original system
    reserve: float = 0.15  # of the budget, left for differences between tokenizers
    # Functions, methods and windows; class headers and module code of their files are not counted.
    # None: the original system's 30, and as many for each further 6,000 tokens of budget. A fixed
    # 30 left a quarter of 24,000 tokens empty.
    max_chunks: int | None = None
    # Imports, constructors, signatures; the rest goes to chunks. Without any, one context
    # in sixty more had all that is to be changed: too little for a model that quotes from memory.
    support_share: float = 0.1
    # One function may not crowd out all others: beyond this share it counts as oversized.
    chunk_share: float = 0.5
    part_ranks: int = 5  # an oversized chunk among the first this many is shown in part,
    part_share: float = 0.25  # in at most this share
    depth: int = 400  # chunks looked at; past this rank about one in a thousand is to be changed
    # The original system's way, for comparison: rank order, the end at the first that does not fit.
    stop_at_oversized: bool = False

    def __post_init__(self) -> None:
        shares = (self.reserve, self.support_share, self.chunk_share, self.part_share)
        if self.budget < 0 or (self.max_chunks or 0) < 0 or not all(0 <= s <= 1 for s in shares):
            raise ConfigurationError(
                "context budget and number of chunks must not be negative, shares lie in 0..1"
            )

    @property
    def limit(self) -> int:
        """Usable tokens: the budget without its reserve."""
        return int(self.budget * (1 - self.reserve))

    @property
    def slots(self) -> int:
        """How many chunks there may be."""
        if self.max_chunks is not None:
            return self.max_chunks
        return max(_CHUNKS, _CHUNKS * self.budget // _CHUNKS_BUDGET)
