"""The counts of a run, its summary, and its progress on stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel

from agent.errors import Status
from agent.shared.terminal import counted, inert, say, unfiltered

UnsolvedKind = Literal["row", "set-aside", "left"]
"""Why there is no final result: the row, its repository or commit cannot be used; the tries are
used up; the next run takes it up.
"""

_WORDS = {"set-aside": "set aside", "row": "unusable", "left": "left for the next run"}


class Unsolved(BaseModel, frozen=True):
    """An instance without a final result, or the place of a row that cannot be read."""

    instance: str
    kind: UnsolvedKind
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

    def in_words(self) -> str:
        """Return the summary as a few lines."""
        kinds = Counter[str](one.kind for one in self.unsolved)
        counts = ", ".join(f"{number} {status}" for status, number in self.statuses.items())
        kept = f" ({self.kept} kept of instances that are not selected)" if self.kept else ""
        return (
            f"{self.finished} of {self.instances} instances finished"
            + (f": {counts}\n" if counts else "\n")
            + ", ".join([f"{self.verified} verified", f"{self.pending} to be done", *_each(kinds)])
            + f"\n{counted(self.replies, 'reply', 'replies')} paid in {self.seconds:.1f} s, "
            f"{cost_in_words(self.cost_usd, self.unpriced)} in all\n"
            f"predictions in {self.predictions}{kept}, everything else in {self.run}\n"
        )


def cost_in_words(dollars: float, unpriced: int) -> str:
    """Return the cost as text. It says how many replies have no known price."""
    without = f"{counted(unpriced, 'reply', 'replies')} without a price"
    if not unpriced:
        return f"${dollars:.4f}"
    return f"${dollars:.4f} + {without}" if dollars else f"cost unknown ({without})"


def _each(kinds: Counter[str]) -> list[str]:
    return [f"{kinds[kind]} {words}" for kind, words in _WORDS.items() if kinds[kind]]


@dataclass(slots=True)
class RunCounts:
    """Counts of a run over `total` selected instances. `fresh` ones were finished by this run."""

    total: int
    finished: int = 0
    fresh: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    unsolved: list[Unsolved] = field(default_factory=list)

    def finish(self, status: Status, verdict: str | None, *, fresh: bool) -> None:
        """Count a final result."""
        self.finished += 1
        self.fresh += fresh
        self.statuses[status.value] += 1
        self.verdicts[verdict or "none"] += 1

    def give_up(self, instance: str, kind: UnsolvedKind, why: str) -> None:
        """Count an instance without a final result."""
        self.unsolved.append(Unsolved(instance=instance, kind=kind, reason=why))

    def standing(self, cost: str, seconds: float) -> str:
        """Return the state of a run of `seconds` in one line."""
        parts = [
            f"{self.finished:,}/{self.total:,} done",
            f"{self.statuses[Status.ACCEPTED.value]:,} accepted, "
            f"{self.verdicts['verified']:,} verified",
            *_each(Counter[str](one.kind for one in self.unsolved)),
            cost,
        ]
        if self.fresh:
            left = max(0, self.total - self.finished - len(self.unsolved))
            minutes = round(left * seconds / self.fresh / 60)
            parts.append(f"ETA {minutes // 60} h {minutes % 60:02} min")
        return " · ".join(parts)


class Progress:
    """Prints a line for each attempt that ends; a terminal shows the state of the run below."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._standing: Callable[[], str] = str
        self._live = None
        if not quiet and sys.stderr.isatty():
            from rich.console import Console

            self._console = Console(file=unfiltered(sys.stderr))
            self._live = self._console.status("")

    def begin(self, counts: RunCounts, cost: Callable[[], str]) -> None:
        """Start the clock. Both arguments are read again whenever something is shown."""
        started = time.monotonic()
        self._standing = lambda: counts.standing(cost(), time.monotonic() - started)
        if self._live is not None:
            self._live.update(self._standing())
            self._live.start()

    def ended(self, instance: str, outcome: str) -> None:
        """Show that an attempt has ended."""
        if self._live is None:
            self.note(f"{instance}: {outcome} | {self._standing()}")
        else:
            self._live.update(self._standing())
            self.note(f"{instance}: {outcome}")

    def note(self, text: str) -> None:
        """Show a message, which may be foreign text, in one line."""
        line = inert(text, " ", kept="")
        if self._live is not None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        elif not self._quiet:
            say(line)

    def close(self) -> None:
        """Remove what is live."""
        if self._live is not None:
            self._live.stop()
