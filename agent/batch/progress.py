"""The counts of a run, and its progress on stderr.

A terminal shows a live line; any other stderr gets one line for each attempt that ends.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from agent.errors import Status
from agent.shared.terminal import inert, say, unfiltered

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_LAST_FAILURES = 3


class Unsolved(BaseModel, frozen=True):
    """An instance without a final result, or the place of a row that cannot be read.

    "row": the row, its repository or commit cannot be used. "set-aside": its tries are used up.
    "left": the next run takes it up.
    """

    instance: str
    kind: Literal["row", "set-aside", "left"]
    reason: str


class Summary(BaseModel, frozen=True):
    """The summary that `--json` prints, over all runs in the folder. Dollars and seconds.

    `instances` counts the selected ones that have a usable row, `fresh` those that this run
    finished, `replies` the model calls that this run paid, and `kept` the predictions of earlier
    runs for instances that are not selected.
    """

    instances: int
    finished: int
    fresh: int
    accepted: int
    verified: int
    statuses: dict[str, int]
    verdicts: dict[str, int]
    unsolved: tuple[Unsolved, ...]
    pending: int
    kept: int = 0
    cost_usd: float
    unpriced: int
    replies: int
    seconds: float
    predictions: str
    run: str
    exit_code: int
    message: str


def replies_in_words(number: int) -> str:
    """Return the number with its noun, such as "1 reply" or "2 replies"."""
    return f"{number} {'reply' if number == 1 else 'replies'}"


def cost_in_words(dollars: float, unpriced: int) -> str:
    """Return the cost as text. It says how many replies have no known price."""
    without = f"{replies_in_words(unpriced)} without a price"
    if not unpriced:
        return f"${dollars:.4f}"
    return f"${dollars:.4f} + {without}" if dollars else f"cost unknown ({without})"


@dataclass(slots=True)
class RunCounts:
    """Counts of a run over `total` selected instances.

    `draining`: no further instance starts.
    """

    total: int
    draining: bool = False
    finished: int = 0
    fresh: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    unsolved: list[Unsolved] = field(default_factory=list)
    failures: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_FAILURES))

    @property
    def accepted(self) -> int:
        """The number of instances with an accepted patch."""
        return self.statuses[Status.ACCEPTED.value]

    @property
    def verified(self) -> int:
        """The number of instances with the verdict "verified"."""
        return self.verdicts["verified"]

    def finish(self, status: Status, verdict: str | None, *, fresh: bool) -> None:
        """Count a final result. `fresh`: this run made it."""
        self.finished += 1
        self.fresh += fresh
        self.statuses[status.value] += 1
        self.verdicts[verdict or "none"] += 1

    def give_up(self, instance: str, kind: Literal["row", "set-aside", "left"], why: str) -> None:
        """Count an instance without a final result."""
        self.unsolved.append(Unsolved(instance=instance, kind=kind, reason=why))

    def count(self, kind: str) -> int:
        """Return the number of unsolved instances of a kind."""
        return sum(unsolved.kind == kind for unsolved in self.unsolved)

    def rate(self, seconds: float) -> float | None:
        """Return the instances per hour of this run, None before the first."""
        return self.fresh * 3600 / seconds if self.fresh and seconds > 0 else None

    def eta(self, seconds: float) -> float | None:
        """Return the seconds that the rest will take at this rate, None if unknown."""
        rate = self.rate(seconds)
        left = self.total - self.finished - len(self.unsolved)
        return None if rate is None or self.draining else max(0, left) * 3600 / rate


class Progress:
    """Prints a line with the state of the run for each attempt that ends; nothing if `quiet`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._standing: Callable[[], str] = str
        self._counts = RunCounts(0)

    def begin(self, counts: RunCounts, cost: Callable[[], str]) -> None:
        """Start the clock. Both arguments are read again whenever something is shown."""
        started = time.monotonic()
        self._counts = counts
        self._standing = lambda: standing(counts, cost(), time.monotonic() - started)

    def ended(self, instance: str, outcome: str, *, ok: bool) -> None:
        """Show that an attempt has ended."""
        self.note(f"{instance}: {outcome} | {self._standing()}")

    def note(self, text: str) -> None:
        """Show a message."""
        if not self._quiet:
            say(_one_line(text))

    def close(self) -> None:
        """End."""


class TerminalProgress(Progress):
    """A live line with the last failures below it; successes and notes scroll above it."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        super().__init__()
        self._console = console
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=2, transient=True
        )

    def begin(self, counts: RunCounts, cost: Callable[[], str]) -> None:
        """Show the live line."""
        super().begin(counts, cost)
        self._live.start()

    def ended(self, instance: str, outcome: str, *, ok: bool) -> None:
        """Print a success; the live part shows failures."""
        if ok:
            self.note(f"✓ {instance}: {outcome}")

    def note(self, text: str) -> None:
        """Print the message above the live line."""
        self._console.print(_one_line(text), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the live line."""
        self._live.stop()

    def _render(self) -> Text:
        from rich.text import Text

        text = Text(self._standing(), style="bold")
        for failure in self._counts.failures:
            text.append(f"\n  {_one_line(failure)}", style="yellow")
        return text


def progress_for(*, quiet: bool) -> Progress:
    """Return the progress that fits where stderr goes."""
    if quiet or not sys.stderr.isatty():
        return Progress(quiet=quiet)
    from rich.console import Console

    return TerminalProgress(Console(file=unfiltered(sys.stderr)))


def standing(counts: RunCounts, cost: str, seconds: float) -> str:
    """Return the state of a run of `seconds` in one line."""
    rate, eta = counts.rate(seconds), counts.eta(seconds)
    parts = [
        f"{counts.finished:,}/{counts.total:,} done",
        f"{counts.accepted:,} accepted, {counts.verified:,} verified",
        *unsolved_in_words(counts.count),
        *([] if rate is None else [f"{rate:,.1f}/h"]),
        cost,
        *([] if eta is None else [f"ETA {duration(eta)}"]),
    ]
    return " · ".join(parts)


def unsolved_in_words(count: Callable[[str], int]) -> list[str]:
    """Return the number of each kind of `Unsolved`, in words, without kinds that are absent."""
    return [f"{count(kind)} {words}" for kind, words in _WORDS.items() if count(kind)]


_WORDS = {"set-aside": "set aside", "row": "unusable", "left": "left for the next run"}


def duration(seconds: float) -> str:
    """Return a duration such as "42 s", "3 min", "2 h 05 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _one_line(text: str) -> str:
    """Return foreign text as one line without control characters."""
    return inert(text, " ", kept="")
