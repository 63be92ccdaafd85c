"""The simulation against runs that were measured: `benchmarks.batch`, on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.keeping import RESULTS
from benchmarks.scale.inputs import Stages, newest
from benchmarks.scale.model import Cluster, Load
from benchmarks.scale.report import simulate


@dataclass(frozen=True, slots=True)
class Compared:
    """Seconds of one width, measured and simulated."""

    workers: int
    measured: float
    simulated: float


def compare(cores: int, stages: Stages, folder: Path = RESULTS) -> Iterator[Compared]:
    """Each width of the newest result of `benchmarks.batch`.

    Only what an instance takes of the processor is taken from the measured run, at its smallest
    width; how it is divided between before and after the call is that of `stages`. Nothing is
    fitted to the seconds. Raises ConfigurationError where nothing was measured.
    """
    found = newest(folder, "batch")
    count = int(found["instances"])
    widths = sorted(found["runs"], key=lambda run: run["workers"])
    share = widths[0]["cpu"] / count / _processor(stages)
    load = Load(count, int(found["projects"]), 0.0, float(found["latency s"]), 0.0, 0.0, 0.0)
    own = replace(
        stages, start=_times(stages.start, share), retrieve=_times(stages.retrieve, share),
        validate=_times(stages.validate, share), cold=(0.0,), repository_bytes=0.0,
        repair_share=0.0,
    )  # fmt: skip
    for width in widths:
        workers = int(width["workers"])
        cluster = Cluster(nodes=1, cores=cores, workers=workers)
        seconds = simulate(cluster, load, own).makespan
        yield Compared(workers, float(width["seconds"]), seconds)


def _processor(stages: Stages) -> float:
    return sum(sum(part) / len(part) for part in (stages.start, stages.retrieve, stages.validate))


def _times(samples: tuple[float, ...], share: float) -> tuple[float, ...]:
    return tuple(share * sample for sample in samples)
