"""Progress for `search` and `index`: with --quiet still what the user has to know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.commands.common import make_redactor, reporting, say
from agent.events import Notice

if TYPE_CHECKING:
    from agent.events import Event
    from agent.protocols import Reporter


@contextmanager
def warning(*, quiet: bool) -> Iterator[Reporter]:
    """As `reporting`, but `quiet` silences progress alone: warnings (another store) are said."""
    with reporting(quiet=quiet) as reporter:
        yield _say_warnings if quiet else reporter


def _say_warnings(event: Event) -> None:
    if isinstance(event, Notice) and event.level == "warning":
        say(f"warning: {make_redactor()(event.message)}")
