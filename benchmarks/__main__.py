"""`make bench`: how long a solve takes around its model call, cold and warm, and where time goes.

Every figure comes from real runs of the command, as a process, against a server on the loopback
interface that notes when the request arrives and when its reply has left. The target is a
repository of about 2,500 Python files: the standard library, filled up from installed packages.
Ratios compare solves of one run; absolute seconds are for this machine only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.keeping import keep, machine
from benchmarks.target import FILES, ISSUE, REPLY, make_target
from tests.support.behaviours import ChatRequest
from tests.support.scripted_provider import ScriptedProvider


@dataclass(frozen=True, slots=True)
class Run:
    """One solve. Seconds; `peak_mb` of the agent's process, without its sandboxed children."""

    kind: str
    to_request: float
    to_verdict: float
    total: float
    peak_mb: float
    timings: dict[str, float]
    status: str


class Stopwatch:
    """A reply that notes when it was asked for."""

    def __init__(self) -> None:
        self.asked = 0.0

    def __call__(self, _: ChatRequest) -> str:
        """Note the moment and reply."""
        self.asked = time.monotonic()
        return REPLY


def solve(kind: str, target: Path, home: Path, *arguments: str) -> Run:
    """Run the command once and measure it from outside."""
    watch = Stopwatch()
    issue = home / "issue.md"
    issue.write_text(ISSUE)
    with ScriptedProvider([watch]) as provider:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PATCHSHOT_CACHE_DIR": str(home / "cache"),
            "PATCHSHOT_BASE_URL": provider.base_url,
            "PATCHSHOT_MODEL": provider.model,
            "PATCHSHOT_API_KEY": "bench",
        }
        command = [
            sys.executable, "-m", "benchmarks.peak", "solve", "--quiet", "--json",
            "--problem", str(issue), "--repo", str(target), *arguments,
        ]  # fmt: skip
        started = time.monotonic()
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=600, check=False,
            cwd=Path(__file__).parent.parent,
        )  # fmt: skip
        ended = time.monotonic()
    result = json.loads(done.stdout)
    if not watch.asked:
        raise SystemExit(f"{kind}: no model call was made: {result['message']}")
    peak = float(done.stderr.decode().strip().splitlines()[-1].removeprefix("peak_mb="))
    return Run(
        kind,
        watch.asked - started,
        ended - watch.asked,
        ended - started,
        peak,
        result["timings"],
        result["status"],
    )


def main() -> None:
    """Measure, print a table with ratios, keep the result."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=FILES)
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--no-save", action="store_true")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="patchshot-bench-") as folder:
        root = Path(folder)
        count, size = make_target(root / "target", chosen.files)
        print(f"target: {count:,} Python files, {size / 1e6:.1f} MB; {machine()}\n")
        runs = measure(root, chosen.repeat)
    summary = summarise(runs)
    print_table(summary)
    if not chosen.no_save:
        target = {"files": count, "bytes": size}
        keep("solve", {"target": target, "summary": summary, "runs": [asdict(r) for r in runs]})


def measure(root: Path, repeat: int) -> list[Run]:
    """Cold: a new cache each time. Warm: the cache of the run before. Bare: without isolation."""
    runs = []
    for number in range(repeat):
        home = root / f"home{number}"
        home.mkdir()
        for kind, arguments in (
            ("cold", ()),
            ("warm", ()),
            ("warm, no sandbox", ("--unsafe-no-sandbox",)),
            ("warm, no tests", ("--no-tests",)),
        ):
            run = solve(kind, root / "target", home, *arguments)
            print(f"  {kind:<18} {run.total:6.2f} s  {run.status}", flush=True)
            runs.append(run)
    return runs


def summarise(runs: list[Run]) -> dict[str, dict[str, Any]]:
    """Medians by kind."""
    kinds = dict.fromkeys(run.kind for run in runs)
    summary = {}
    for kind in kinds:
        own = [run for run in runs if run.kind == kind]
        summary[kind] = {
            "to_request": statistics.median(run.to_request for run in own),
            "to_verdict": statistics.median(run.to_verdict for run in own),
            "peak_mb": max(run.peak_mb for run in own),
            "stages": {
                stage: statistics.median(run.timings.get(stage, 0.0) for run in own)
                for stage in own[0].timings
            },
        }
    return summary


def print_table(summary: dict[str, dict[str, Any]]) -> None:
    """The medians, and the ratios within this run."""
    print(f"\n{'':<18} start->request  reply->verdict  peak MB")
    for kind, row in summary.items():
        print(
            f"{kind:<18} {row['to_request']:>12.2f} s {row['to_verdict']:>13.2f} s"
            f" {row['peak_mb']:>8.0f}"
        )
    stages = (f"{name} {seconds:.2f}" for name, seconds in summary["warm"]["stages"].items())
    print("\nwhere the time goes, warm (s):", *stages, end="")
    cold, warm, bare = (summary[k] for k in ("cold", "warm", "warm, no sandbox"))
    print(f"\n\nwarm / cold, start->request:      {warm['to_request'] / cold['to_request']:.2f}")
    print(f"sandboxed / bare, reply->verdict: {warm['to_verdict'] / bare['to_verdict']:.2f}")


if __name__ == "__main__":
    main()
