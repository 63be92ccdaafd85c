"""The settings of packing."""

from __future__ import annotations

from dataclasses import dataclass

from agent.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PackingOptions:
    """How to fill the budget. Shares are of `limit`.

    Raises ConfigurationError for values out of range.
    """

    budget: int = 6000  # tokens, as in the original system
    reserve: float = 0.15  # of the budget, left for differences between tokenizers
    # Functions, methods and windows; class headers and module code of their files are not counted.
    max_chunks: int = 30
    support_share: float = 0.2  # class headers, imports, signatures; the rest goes to chunks
    # One function may not crowd out all others: beyond this share it counts as oversized.
    chunk_share: float = 0.5
    part_ranks: int = 5  # an oversized chunk among the first this many is shown in part,
    part_share: float = 0.25  # in at most this share
    depth: int = 200  # chunks looked at; past this rank nothing has ever been worth its tokens
    stop_at_oversized: bool = False  # the original system's flaw, for comparison

    def __post_init__(self) -> None:
        shares = (self.reserve, self.support_share, self.chunk_share, self.part_share)
        if self.budget < 0 or self.max_chunks < 0 or not all(0 <= s <= 1 for s in shares):
            raise ConfigurationError(
                "context budget and number of chunks must not be negative, shares lie in 0..1"
            )

    @property
    def limit(self) -> int:
        """Usable tokens: the budget without its reserve."""
        return int(self.budget * (1 - self.reserve))
