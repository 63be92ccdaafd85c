"""`python -m benchmarks.scale`: 10,000 instances on 100 nodes, and what holds them back.

Stage times are those of `benchmarks/results/`, or (`--from RUN`) of the journal of a real run. What
is not measured here (the provider, the nodes, the network) is an option. The same seed and inputs
give the same output.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent.errors import PatchshotError
from benchmarks.scale.checking import compare
from benchmarks.scale.inputs import Stages, from_results, from_run
from benchmarks.scale.model import Cluster, Load
from benchmarks.scale.report import Figures, in_words, simulate, sweeps, table


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate, and print figures and tables in Markdown."""
    try:
        _run(_parser().parse_args(argv))
    except PatchshotError as error:
        print(f"benchmarks.scale: {error}", file=sys.stderr)
        return 2
    return 0


def _run(given: argparse.Namespace) -> None:
    stages = from_results() if given.run is None else from_run(given.run, from_results())
    stages = replace(stages, price_input=given.price_input, price_output=given.price_output)
    cluster = Cluster(
        nodes=given.nodes, cores=given.cores, workers=given.workers,
        requests_a_minute=given.requests, tokens_a_minute=given.tokens, network=given.network,
        affinity=given.affinity,
    )  # fmt: skip
    load = Load(instances=given.instances, projects=given.projects, latency=given.latency)
    print(_about(stages))
    print(_in_words(cluster, load, simulate(cluster, load, stages)))
    for row in compare(os.cpu_count() or 1, stages) if given.check else ():
        print(
            f"{row.workers} workers: {row.measured:.1f} s measured, {row.simulated:.1f} s "
            f"simulated ({row.simulated / row.measured:.2f})"
        )
    for what, cases in sweeps(cluster, load, stages).items() if given.sweeps else ():
        print(f"\n{table(what, cases)}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument(
        "--from", dest="run", type=Path, metavar="RUN", help="folder of a batch run"
    )
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--cores", type=int, default=4, help="of a node")
    parser.add_argument("--workers", type=int, default=8, help="of a node")
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--projects", type=int, default=200)
    parser.add_argument("--latency", type=float, default=25.0, help="median of a call, s")
    parser.add_argument("--requests", type=float, default=0.0, help="a minute; 0: no limit")
    parser.add_argument("--tokens", type=float, default=0.0, help="a minute; 0: no limit")
    parser.add_argument("--network", type=float, default=1_000.0, help="of repositories, MB/s")
    parser.add_argument("--affinity", action="store_true", help="a node keeps to its projects")
    parser.add_argument("--price-input", type=float, default=1.0, help="USD a million tokens")
    parser.add_argument("--price-output", type=float, default=5.0, help="USD a million tokens")
    parser.add_argument(
        "--check", action="store_true", help="against the measured benchmarks.batch"
    )
    parser.add_argument("--sweeps", action="store_true", help="tables over what is varied")
    return parser


def _about(stages: Stages) -> str:
    def mean(samples: tuple[float, ...]) -> str:
        return f"{sum(samples) / len(samples):.2f} s"

    return (
        f"start {mean(stages.start)}, retrieve {mean(stages.retrieve)}, cold index "
        f"{mean(stages.cold)}, a trial {mean(stages.validate)} of processor time; "
        f"{stages.input_tokens:,} + {stages.output_tokens:,} tokens a call; "
        f"{stages.repair_share:.0%} call again, {stages.iterative_share:.0%} of these step by step"
    )


def _in_words(cluster: Cluster, load: Load, found: Figures) -> str:
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found.shares.items())
    return (
        f"{load.instances:,} instances of {load.projects} projects on {cluster.nodes} nodes of "
        f"{cluster.cores} cores and {cluster.workers} workers: {in_words(found.makespan)}, "
        f"{found.an_hour:,.0f} an hour, {found.calls:,} calls ({found.retries:,} refused or lost), "
        f"${found.cost_usd:,.2f}; an instance {found.p50:.0f} s (p95 {found.p95:.0f} s); "
        f"{shares}; held back by: {found.bottleneck}"
    )


if __name__ == "__main__":
    sys.exit(main())
