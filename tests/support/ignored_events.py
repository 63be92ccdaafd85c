"""A `Reporter` for tests that do not look at events."""

from __future__ import annotations

from agent.types.events import Event


def ignore(_event: Event, /) -> None:
    """Take the event and do nothing."""
