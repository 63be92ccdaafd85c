"""The progress of a run on stderr: a live line on a terminal, a line an instance elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from agent.batch.tally import Tally

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Progress(Protocol):
    """Shows what happens. Must not raise."""

    def begin(self, tally: Tally, cost: Callable[[], str]) -> None:
        """The run begins; both are asked again whenever something is shown."""
        ...

    def ended(self, instance: str, outcome: str, *, ok: bool) -> None:
        """An attempt has ended."""
        ...

    def note(self, text: str) -> None:
        """Something to be known."""
        ...

    def close(self) -> None:
        """The run has ended."""
        ...


class QuietProgress:
    """Shows nothing."""

    def begin(self, tally: Tally, cost: Callable[[], str]) -> None:
        """Nothing."""

    def ended(self, instance: str, outcome: str, *, ok: bool) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainProgress:
    """A line for each attempt that ends, with where the run stands."""

    def __init__(self) -> None:
        self._standing: Callable[[], str] = str

    def begin(self, tally: Tally, cost: Callable[[], str]) -> None:
        """Remember what to show."""
        started = time.monotonic()
        self._standing = lambda: standing(tally, cost(), time.monotonic() - started)

    def ended(self, instance: str, outcome: str, *, ok: bool) -> None:
        """One line."""
        _print(f"{instance}: {outcome} | {self._standing()}")

    def note(self, text: str) -> None:
        """One line."""
        _print(text)

    def close(self) -> None:
        """Nothing: the command says how it ended."""


class TerminalProgress:
    """A line that stays, with the last failures below it; failures and notes pass above it."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._standing: Callable[[], str] = str
        self._failures: Callable[[], list[str]] = list
        self._console = console
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=2, transient=True
        )

    def begin(self, tally: Tally, cost: Callable[[], str]) -> None:
        """Show the line."""
        started = time.monotonic()
        self._standing = lambda: standing(tally, cost(), time.monotonic() - started)
        self._failures = lambda: list(tally.failures)
        self._live.start()

    def ended(self, instance: str, outcome: str, *, ok: bool) -> None:
        """A line where it is good news; failures stand below."""
        if ok:
            self._above(f"✓ {instance}: {outcome}")

    def note(self, text: str) -> None:
        """A line."""
        self._above(text)

    def close(self) -> None:
        """Take the line away."""
        self._live.stop()

    def _above(self, text: str) -> None:
        self._console.print(_inert(text), markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> Text:
        from rich.text import Text

        text = Text(self._standing(), style="bold")
        for failure in self._failures():
            text.append(f"\n  {_inert(failure)}", style="yellow")
        return text


def progress_for(*, quiet: bool) -> Progress:
    """The progress that fits where stderr goes."""
    if quiet:
        return QuietProgress()
    if not sys.stderr.isatty():
        return PlainProgress()
    from rich.console import Console

    return TerminalProgress(Console(stderr=True))


def standing(tally: Tally, cost: str, seconds: float) -> str:
    """Where a run of `seconds` stands, in one line."""
    rate, eta = tally.rate(seconds), tally.eta(seconds)
    parts = [
        f"{tally.finished:,}/{tally.total:,} done",
        f"{tally.accepted:,} accepted, {tally.verified:,} verified",
        *unsolved_in_words(tally.count),
        *([] if rate is None else [f"{rate:,.1f}/h"]),
        cost,
        *([] if eta is None else [f"ETA {duration(eta)}"]),
    ]
    return " · ".join(parts)


def unsolved_in_words(count: Callable[[str], int]) -> list[str]:
    """How many of each kind (`agent.batch.tally.Unsolved`) there are, of those that there are."""
    return [f"{count(kind)} {words}" for kind, words in _WORDS.items() if count(kind)]


_WORDS = {"set-aside": "set aside", "row": "unusable", "left": "left for the next run"}


def duration(seconds: float) -> str:
    """42 s, 3 min, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _print(text: str) -> None:
    print(_inert(text), file=sys.stderr, flush=True)  # noqa: T201


def _inert(text: str) -> str:
    """Text that may be a repository's or a model's: one line, nothing that steers a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
