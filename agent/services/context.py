"""How the context is filled and counted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.settings import Settings

if TYPE_CHECKING:
    from agent.context.options import PackingOptions
    from agent.protocols import TokenCounter


def packing_options(settings: Settings) -> PackingOptions:
    """How the context is filled."""
    from agent.context.options import PackingOptions
    from agent.retrieval.presets import split_name

    options = PackingOptions(
        budget=settings.context_tokens,
        reserve=settings.context_reserve,
        max_chunks=settings.max_chunks,
    )
    if split_name(settings.preset)[0] == "original":
        # Whole chunks only, nothing around them, and the end at the first that does not fit.
        return replace(
            options,
            max_chunks=settings.max_chunks or 30,
            support_share=0.0,
            chunk_share=1.0,
            part_share=0.0,
            stop_at_oversized=True,
        )
    return options


def make_counter(model: str | None) -> TokenCounter:
    """The exact counter that fits the model best."""
    from agent.tokens import TiktokenCounter, encoding_for

    return TiktokenCounter(encoding_for(model or ""))
