"""`python -m benchmarks.batch`: how the throughput of `agent batch` grows with its workers.

A loopback provider answers each chat call after 2 s; everything else is real: workers, retrieval,
tests in the sandbox, the journal. The projects are generated: small packages, each with modules
that round wrongly, one instance a module. Their tests run in an environment that holds pytest and
nothing else, as a project's own does: plugins that are installed here would only cost time. Every
width begins with an empty run folder; caches are empty too, or (`--warm`) filled by a run before.
Ratios compare runs of one invocation; seconds are for this machine only. `others' cores` is what
other programs took of the machine meanwhile. Where the tests of all workers need more time than its
cores have, more workers do not help: `--no-tests` leaves them out, and shows what `agent batch`
itself allows.

`--engine ray` starts two nodes on the loopback interface, which share the cores of this machine,
and takes them down again. Starting the run (joining a cluster takes seconds) is part of its time;
`once begun` leaves it out.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.keeping import keep, machine, print_figures
from tests.support.behaviours import Answer, ChatRequest, Good, Slow
from tests.support.scripted_provider import ScriptedProvider

LATENCY = 2.0
LEAST_LINEAR = 0.9
"""Throughput at the greatest width, of what as many times the throughput of one worker would be."""

_HELPERS = 24  # modules of a project that have nothing to do with the issues


@dataclass(frozen=True, slots=True)
class Width:
    """One run. Seconds: of the whole command, and of those `at_work`, from when it could give out
    instances; `cpu` is of the run's processes, sandboxed ones included.
    """

    workers: int
    seconds: float
    at_work: float
    cpu: float
    others_cores: float
    verified: int


@dataclass(frozen=True, slots=True)
class Bench:
    """Where everything lies, and what is run."""

    root: Path
    instances: int
    arguments: tuple[str, ...]
    environment: dict[str, str]


def measure(bench: Bench, workers: int, provider: ScriptedProvider, home: Path) -> Width:
    """One run of the command, timed from outside."""
    home.mkdir(exist_ok=True)
    output = home / f"preds-{workers}-{time.monotonic_ns()}.json"
    before, busy, started = _children_cpu(), _busy_cpu(), time.monotonic()
    done = subprocess.run(
        [
            sys.executable, "-m", "agent", "batch", "--dataset", str(bench.root / "set.jsonl"),
            "--repos", str(bench.root / "repositories"), "--output", str(output),
            "--embed", "off", "--workers", str(workers), "--json", *bench.arguments,
        ],
        env={
            **bench.environment,
            "HOME": str(home),
            "PATCHSHOT_CACHE_DIR": str(home / "cache"),
            "PATCHSHOT_BASE_URL": provider.base_url,
            "PATCHSHOT_API_KEY": "bench",
            "PATCHSHOT_MODEL": provider.model,
            "PATCHSHOT_PYTHON": str(bench.root / "venv/bin/python"),
        },
        capture_output=True,
        timeout=1800,
        check=False,
    )  # fmt: skip
    seconds = time.monotonic() - started
    if done.returncode:
        sys.exit(f"the run has failed: {done.stderr.decode()[-2000:]}")
    cpu = _children_cpu() - before
    others = max(0.0, _busy_cpu() - busy - cpu) / seconds
    summary = json.loads(done.stdout)
    return Width(workers, seconds, summary["seconds"], cpu, others, summary["verified"])


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _busy_cpu() -> float:
    """CPU seconds of the machine since it was started, without idling and waiting (proc(5))."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, soft = map(int, fields[:7])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


# --------------------------------------------------------------------------------------- the set


def make_set(root: Path, instances: int, projects: int) -> None:
    """The repositories and the data set below `root`."""
    rows = []
    for project in range(projects):
        numbers = range(project, instances, projects)
        commit = _make_project(root / "repositories" / f"bench__shop{project}", numbers)
        rows += [_row(project, number, commit) for number in numbers]
    rows.sort(key=lambda row: int(row["instance_id"].rpartition("-")[2]))
    (root / "set.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _row(project: int, number: int, commit: str) -> dict[str, str]:
    return {
        "instance_id": f"bench__shop{project}-{number}",
        "repo": f"bench/shop{project}",
        "base_commit": commit,
        "problem_statement": (
            f"Totals are rounded per line instead of once\n\n`invoice_total_{number}` rounds every "
            "line before it adds them up, so an invoice of three lines of 0.333 comes out as 0.99 "
            "instead of 1.0.\n"
        ),
    }


def _make_project(root: Path, numbers: Sequence[int]) -> str:
    files = {"shop/__init__.py": "", **dict(_helpers())}
    for number in numbers:
        files |= {
            f"shop/invoice_{number}.py": (
                f'"""Sums of invoices of kind {number}."""\n\n\n'
                f"def invoice_total_{number}(lines: list[float]) -> float:\n"
                '    """The total, in whole cents."""\n'
                "    return sum(round(line, 2) for line in lines)\n"
            ),
            f"tests/test_invoice_{number}.py": (
                f"from shop.invoice_{number} import invoice_total_{number}\n\n\n"
                f"def test_total():\n    assert invoice_total_{number}([1.0, 2.5]) == 3.5\n"
            ),
        }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.invalid")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "base")):
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True, timeout=300)
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, check=True, timeout=60, capture_output=True
    )
    return found.stdout.decode().strip()


def _helpers() -> Iterator[tuple[str, str]]:
    for number in range(_HELPERS):
        functions = "\n\n".join(
            f"def stock_{number}_{step}(items: list[int], limit: int) -> list[int]:\n"
            f'    """Items of shelf {step} that are below the limit."""\n'
            f"    return [item + {step} for item in items if item < limit]\n"
            for step in range(12)
        )
        yield f"shop/shelf_{number}.py", f'"""Shelves of hall {number}."""\n\n\n{functions}'


def make_environment(folder: Path) -> None:
    """A virtual environment with pytest, from the files that are installed here."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for file in metadata.files(name) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), packages / file)
    compileall.compile_dir(packages, quiet=1)


def reply(request: ChatRequest) -> str:
    """The right answer to the instance that the prompt is about."""
    found = re.search(r"`invoice_total_([0-9]+)` rounds", request.prompt)
    assert found is not None
    number = found.group(1)
    change = {
        "path": f"shop/invoice_{number}.py",
        "search": "    return sum(round(line, 2) for line in lines)\n",
        "replace": "    return round(sum(lines), 2)\n",
    }
    test = {
        "path": f"tests/test_rounding_{number}.py",
        "content": (
            f"from shop.invoice_{number} import invoice_total_{number}\n\n\n"
            f"def test_once():\n    assert invoice_total_{number}([0.333] * 3) == 1.0\n"
        ),
    }
    return json.dumps({"thought": "Round once.", "edits": [change], "reproduction_test": test})


@dataclass(frozen=True, slots=True)
class Late:
    """A right answer, after the latency."""

    def answer(self, request: ChatRequest) -> Answer:
        """What to send."""
        return Slow(LATENCY, Good(reply(request))).answer(request)


# ----------------------------------------------------------------------------------------- report


def figures(widths: Sequence[Width], instances: int, *, nodes: bool) -> dict[str, float]:
    """What is printed and kept. With `nodes` most of the work is no child of this process."""
    found: dict[str, float] = {}
    one, work = (w * widths[0].workers for w in (widths[0].seconds, widths[0].at_work))
    for width in widths:
        name = f"{width.workers} worker{'s' * (width.workers != 1)}"
        found |= {
            f"{name}, s": width.seconds,
            f"{name}, instances a minute": 60 * instances / width.seconds,
            f"{name}, of linear": one / width.workers / width.seconds,
            f"{name}, of linear, once begun": work / width.workers / width.at_work,
            f"{name}, verified": width.verified,
        }
        if not nodes:
            found |= {
                f"{name}, CPU s an instance": width.cpu / instances,
                f"{name}, others' cores": width.others_cores,
            }
    return found


@contextmanager
def _engine(name: str, python: Path) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Options and environment that choose the engine, for the time of the block.

    Nodes have an interpreter for tests of their own: `python`.
    """
    environment = {"PATH": os.environ["PATH"]}
    if name == "local":
        yield (), environment
        return
    from tests.support.ray_cluster import RayCluster

    cores = max(1, len(os.sched_getaffinity(0)) // 2)
    with RayCluster(cores=cores, settings={"PATCHSHOT_PYTHON": str(python)}) as cluster:
        yield ("--engine", "ray", "--address", cluster.address), environment | cluster.environment


def main() -> None:
    """Measure, print a table, keep the result."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    options.add_argument("--instances", type=int, default=96)
    options.add_argument("--projects", type=int, default=4)
    options.add_argument("--engine", choices=["local", "ray"], default="local")
    options.add_argument("--warm", action="store_true", help="fill the caches by a run before")
    options.add_argument("--no-tests", action="store_true", help="leave out the projects' tests")
    options.add_argument("--no-save", action="store_true")
    chosen = options.parse_args()
    print(f"{chosen.instances} instances, {LATENCY:g} s a reply; {machine()}\n", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="ps-") as folder,
        ScriptedProvider([Late()]) as provider,
        _engine(chosen.engine, Path(folder) / "venv/bin/python") as (arguments, environment),
    ):
        root = Path(folder)
        make_set(root, chosen.instances, chosen.projects)
        make_environment(root / "venv")
        arguments += ("--no-tests",) * chosen.no_tests
        bench = Bench(root, chosen.instances, arguments, environment)
        if chosen.warm:
            measure(bench, 4, provider, root / "home")
        widths = [
            measure(bench, number, provider, root / ("home" if chosen.warm else f"home{number}"))
            for number in chosen.workers
        ]
    _report(chosen, widths)


def _report(chosen: argparse.Namespace, widths: Sequence[Width]) -> None:
    found = figures(widths, chosen.instances, nodes=chosen.engine == "ray")
    least = {f"{widths[-1].workers} workers, of linear, once begun": LEAST_LINEAR}
    print_figures(found, {}, least)
    if not chosen.no_save:
        about: dict[str, Any] = {
            "instances": chosen.instances, "projects": chosen.projects, "engine": chosen.engine,
            "latency s": LATENCY, "tests": not chosen.no_tests,
            "caches": "warm" if chosen.warm else "cold",
        }  # fmt: skip
        name = "batch" + "-no-tests" * chosen.no_tests + "-ray" * (chosen.engine == "ray")
        keep(name, {**about, "figures": found, "runs": [asdict(width) for width in widths]})


if __name__ == "__main__":
    main()
