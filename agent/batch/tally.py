"""What has come of a run so far: counted for the progress, told at the end."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict

from agent.errors import Status

_LAST_FAILURES = 3


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Unsolved(_Model):
    """An instance (or, where its row cannot be read, a place) without a final result, and why.

    "row": the row, its repository or commit cannot be used. "set-aside": its tries are used up.
    "left": to be taken up by the next run.
    """

    instance: str
    kind: Literal["row", "set-aside", "left"]
    reason: str


class Summary(_Model):
    """The summary that `--json` prints. Dollars and seconds; counts are of all runs in the folder.

    `instances` are the selected ones that have a usable row. `fresh` were finished by this run.
    `replies`: model calls paid for by this run. `kept`: predictions of instances that are not
    selected, made by earlier runs in the folder.
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
    """1 reply, 2 replies."""
    return f"{number} {'reply' if number == 1 else 'replies'}"


def cost_in_words(dollars: float, unpriced: int) -> str:
    """What was paid, as far as it is known."""
    without = f"{replies_in_words(unpriced)} without a price"
    if not unpriced:
        return f"${dollars:.4f}"
    return f"${dollars:.4f} + {without}" if dollars else f"cost unknown ({without})"


@dataclass(slots=True)
class Tally:
    """Counts of a run, `total` instances of which are selected.

    `draining`: no instance begins any more.
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
        """Instances with an accepted patch."""
        return self.statuses[Status.ACCEPTED.value]

    @property
    def verified(self) -> int:
        """Instances whose patch turned a test."""
        return self.verdicts["verified"]

    def finish(self, status: Status, verdict: str | None, *, fresh: bool) -> None:
        """Count a final result; `fresh`: of this run."""
        self.finished += 1
        self.fresh += fresh
        self.statuses[status.value] += 1
        self.verdicts[verdict or "none"] += 1

    def give_up(self, instance: str, kind: Literal["row", "set-aside", "left"], why: str) -> None:
        """Count an instance without one."""
        self.unsolved.append(Unsolved(instance=instance, kind=kind, reason=why))

    def count(self, kind: str) -> int:
        """Unsolved instances of a kind."""
        return sum(unsolved.kind == kind for unsolved in self.unsolved)

    def rate(self, seconds: float) -> float | None:
        """Instances an hour, of those finished by this run; None before the first."""
        return self.fresh * 3600 / seconds if self.fresh and seconds > 0 else None

    def eta(self, seconds: float) -> float | None:
        """Seconds that the rest will take at this rate; None where that cannot be told."""
        rate = self.rate(seconds)
        left = self.total - self.finished - len(self.unsolved)
        return None if rate is None or self.draining else max(0, left) * 3600 / rate
