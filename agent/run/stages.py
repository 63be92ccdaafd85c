"""The stages of a run, as the user sees them: each is reported and timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agent.run.record import Ledger
from agent.types.events import StageFinished, StageStarted
from agent.types.protocols import Reporter


@dataclass(frozen=True, slots=True)
class StageTimer:
    """Opens the stages of one run, and adds their times to its ledger."""

    reporter: Reporter
    ledger: Ledger

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[list[str]]:
        """Report and time one stage. The caller appends a summary of what it made."""
        started = time.perf_counter()
        summary: list[str] = []
        finished = False
        self.reporter(StageStarted(name, detail))
        try:
            yield summary
            finished = True
        finally:
            seconds = time.perf_counter() - started
            self.ledger.spend(name, seconds)
            self.reporter(StageFinished(name, seconds, "; ".join(summary), finished))
