"""Measured times of the stages: from `benchmarks/results/`, and from the journal of a real run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.batch.journal import Settled, StageEntry, read_entries
from agent.errors import ConfigurationError
from benchmarks.keeping import RESULTS

_MOST_SAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Stages:
    """Processor seconds of a stage as samples (one: always the same), and what a run is like.

    `validate` is of all runs of a trial together, which use `runs_at_once` cores. `journal` is one
    synced line, `report` what the driver does for a finished instance. Prices in USD per million
    tokens. `repair_share` of the instances call a second time, `iterative_share` of these go on
    step by step.
    """

    start: tuple[float, ...] = (1.0,)
    cold: tuple[float, ...] = (12.0,)
    retrieve: tuple[float, ...] = (1.3,)
    validate: tuple[float, ...] = (8.0,)
    step: tuple[float, ...] = (1.0,)
    runs_at_once: int = 2
    journal: float = 0.004  # measured: median of 300 appends on a busy disk
    report: float = 0.01
    repository_bytes: float = 65e6
    input_tokens: int = 7_000
    output_tokens: int = 1_200
    repair_share: float = 0.25
    iterative_share: float = 0.3
    iterative_steps: int = 6
    price_input: float = 1.0
    price_output: float = 5.0

    def price(self, tokens: int) -> float:
        """USD of one call with so many tokens of input."""
        return (tokens * self.price_input + self.output_tokens * self.price_output) / 1e6


def from_results(folder: Path = RESULTS) -> Stages:
    """The stages of `agent solve` on 2,500 files, by the newest results.

    Raises ConfigurationError where nothing was measured.
    """
    solve, retrieval = newest(folder, "solve"), newest(folder, "retrieval")["figures"]
    warm = solve["summary"]["warm"]
    stages = warm["stages"]
    before = stages["snapshot"] + stages["retrieve"] + stages["pack"]
    return replace(
        Stages(),
        start=(max(0.0, warm["to_request"] - before),),
        retrieve=(before,),
        cold=(retrieval["cold CPU, s"],),
        # Wall time of two runs at once on two cores.
        validate=(2 * stages["validate"],),
    )


def from_run(folder: Path, stages: Stages) -> Stages:
    """The same with what the journal of a real run says; times are wall seconds of its workers.

    Raises ConfigurationError: no journal, or nothing finished in it.
    """
    journal = folder / "journal.jsonl"
    if not journal.is_file():
        raise ConfigurationError(f"{folder}: no journal.jsonl; name the folder of a batch run")
    trials: list[float] = []
    ready: dict[tuple[str, int], list[float]] = defaultdict(list)
    settled: list[Settled] = []
    for entry in read_entries(journal):
        if isinstance(entry, StageEntry):
            if entry.stage in ("retrieve", "pack"):
                ready[entry.id, entry.attempt].append(entry.seconds)
            elif entry.stage == "validate":
                trials.append(entry.seconds)
        elif isinstance(entry, Settled) and entry.how == "paid":
            settled.append(entry)
    if not settled:
        raise ConfigurationError(f"{journal}: no paid reply; let the run go on first")
    # The first two of an attempt; a repair packs once more.
    first = [sum(both[:2]) for both in ready.values() if len(both) > 1]
    found: dict[str, Any] = {
        "retrieve": _samples(first, stages.retrieve),
        "validate": _samples([2 * each for each in trials], stages.validate),
    }
    return replace(stages, **found, **_habits(settled, stages))


def _habits(settled: Iterable[Settled], stages: Stages) -> Mapping[str, Any]:
    """How often instances call, and how much they send, by the replies that were paid."""
    entries = list(settled)
    calls: dict[str, int] = defaultdict(int)
    for entry in entries:
        calls[entry.id] += 1
    more = [count for count in calls.values() if count > 1]
    step_by_step = [count - 2 for count in more if count > 2]
    return {
        "input_tokens": round(_mean([entry.input_tokens for entry in entries])),
        "output_tokens": round(_mean([entry.output_tokens for entry in entries])),
        "repair_share": len(more) / len(calls),
        "iterative_share": len(step_by_step) / len(more) if more else 0.0,
        "iterative_steps": round(_mean(step_by_step)) if step_by_step else stages.iterative_steps,
    }


def _samples(values: list[float], otherwise: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted(values)[:_MOST_SAMPLES]) or otherwise


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


def newest(folder: Path, name: str) -> dict[str, Any]:
    """The newest kept result of a benchmark. Raises ConfigurationError where there is none."""
    files = sorted(folder.glob(f"????-??-??-{name}.json"))
    if not files:
        raise ConfigurationError(f"{folder}: no result of {name}; run `make bench`")
    found: dict[str, Any] = json.loads(files[-1].read_text("utf-8"))
    return found
