"""What a simulated run comes to, and tables over what is varied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.scale.inputs import Stages
from benchmarks.scale.model import Cluster, Load, World

_HOUR = 3600.0

# Where nothing else is as busy as this, it is the number of workers that holds the run back.
_BUSY = 0.85


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds, USD, shares from 0 to 1. `p50`, `p95`: of an instance, from its start to its end.

    `shares` are of the time until nine in ten instances had ended.
    """

    makespan: float
    an_hour: float
    cost_usd: float
    p50: float
    p95: float
    calls: int
    retries: int
    shares: dict[str, float]

    @property
    def bottleneck(self) -> str:
        """The busiest resource; "workers" where all are waiting for replies."""
        name = max(self.shares, key=lambda key: (self.shares[key], key))
        return name if self.shares[name] >= _BUSY else "workers"


def simulate(cluster: Cluster, load: Load, stages: Stages) -> Figures:
    """One run. The same input gives the same figures."""
    world = World(cluster, load, stages)
    seconds = world.run()
    ends = sorted(world.tally.ends)
    return Figures(
        makespan=seconds,
        an_hour=len(ends) / seconds * _HOUR,
        cost_usd=world.tally.cost_usd,
        p50=_quantile(ends, 0.5),
        p95=_quantile(ends, 0.95),
        calls=world.tally.calls,
        retries=world.tally.retries,
        shares=world.tally.shares,
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A row of a sweep."""

    name: str
    cluster: Cluster
    load: Load
    stages: Stages


def sweeps(cluster: Cluster, load: Load, stages: Stages) -> dict[str, tuple[Case, ...]]:
    """What is varied, one thing at a time from the given middle."""

    def clusters(field: str, values: Iterable[float]) -> tuple[Case, ...]:
        changes: Iterable[dict[str, Any]] = ({field: value} for value in values)
        return tuple(
            Case(f"{change[field]:,g}", replace(cluster, **change), load, stages)
            for change in changes
        )

    return {
        "nodes": clusters("nodes", (1, 10, 50, 100, 200, 400)),
        "workers a node": clusters("workers", (1, 2, 4, 8, 16, 32, 64)),
        "requests a minute": clusters("requests_a_minute", (60, 300, 600, 1_200, 3_000, 0)),
        "tokens a minute": clusters("tokens_a_minute", (2e5, 1e6, 5e6, 2e7, 0)),
        "latency of a call, s": tuple(
            Case(f"{value:g}", cluster, replace(load, latency=float(value)), stages)
            for value in (2, 10, 25, 60, 180)
        ),
        "a trial, s of processor": tuple(
            Case(f"{value:g}", cluster, load, replace(stages, validate=(float(value),)))
            for value in (2, 8, 30, 100, 300)
        ),
        "network, MB/s": clusters("network", (100, 300, 1_000, 3_000)),
        "node keeps to its projects": tuple(
            Case(str(value).lower(), replace(cluster, affinity=value), load, stages)
            for value in (False, True)
        ),
        "shared index": tuple(
            Case(str(value).lower(), replace(cluster, shared_index=value), load, stages)
            for value in (True, False)
        ),
        "a synced line of the journal, ms": tuple(
            Case(f"{1e3 * value:g}", cluster, load, replace(stages, journal=value))
            for value in (0.001, 0.004, 0.01, 0.04)
        ),
    }


def table(what: str, cases: Sequence[Case]) -> str:
    """A sweep in Markdown."""
    lines = [
        f"| {what} | makespan | instances/h | p50 | p95 | cores | network | driver | requests | "
        "tokens | bottleneck |",
        f"|{'--:|' * 10}---|",
    ]
    for case in cases:
        found = simulate(case.cluster, case.load, case.stages)
        shares = " | ".join(f"{found.shares[name]:.0%}" for name in found.shares)
        lines.append(
            f"| {case.name} | {in_words(found.makespan)} | {found.an_hour:,.0f} "
            f"| {found.p50:.0f} s | {found.p95:.0f} s | {shares} | {found.bottleneck} |"
        )
    return "\n".join(lines)


def in_words(seconds: float) -> str:
    """`1 h 05 min`, `7.5 min`."""
    minutes = round(seconds / 60)
    return (
        f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 90 else f"{seconds / 60:.1f} min"
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
