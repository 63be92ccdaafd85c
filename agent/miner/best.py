"""Which patch a miner hands back: the best that at least parses, known at every moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.result import Attempt, Ledger, furthest
from agent.types import Verdict


@dataclass(slots=True)
class ValidLedger(Ledger):
    """A ledger that tells `on_valid` the best valid diff after each record; None: there is none."""

    on_valid: Callable[[bytes | None], None] = lambda _: None

    def record(self, attempt: Attempt, *, replacing_last: bool = False) -> None:
        """Keep an attempt, and say what would be handed back now."""
        # Not `super()`: a slotted dataclass is another class than the one its methods close over.
        Ledger.record(self, attempt, replacing_last=replacing_last)
        best = furthest([made for made in self.attempts if is_valid(made)])
        self.on_valid(best.patch.diff if best is not None and best.patch is not None else None)


def is_valid(attempt: Attempt) -> bool:
    """Whether there is a patch that does not break the syntax; one not yet checked counts."""
    if attempt.patch is None or not attempt.patch.diff:
        return False
    return attempt.report is None or attempt.report.verdict is not Verdict.BROKEN_SYNTAX
