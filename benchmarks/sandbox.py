"""`python -m benchmarks.sandbox`: what isolation costs, as ratios within one run.

The same pytest suite of some 30 s (arithmetic, files, short processes) runs bare and in bubblewrap,
in turn, from a private copy in the same place. Then: starting a command over starting it bare,
preparing private copies of repositories, copying and removing them, and a gigabyte of output. Wall
time is what a person waits for; on a machine that does other things, the ratio of processor times
tells more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.keeping import keep, machine, print_figures
from benchmarks.target import make_target
from sandbox.bwrap.backend import BwrapSandbox
from sandbox.environment import PATH
from sandbox.host_programs import find_interpreter
from sandbox.types import Command, Limits
from sandbox.workspace.copy import Workspace, empty_workspace, prepare_workspace
from sandbox.workspace.private import choose_directory

ROOT = Path(__file__).parent.parent
SUITE_SECONDS = 30.0
SIZES = (2_500, 7_000)
LIMITS = {
    "suite: sandboxed / plain": 1.15,
    "start-up over plain, s": 0.1,
    "prepare 7,000 files, s": 1.0,
}
"""What the sandbox is held to; a figure above its limit is marked in the table."""

_CALIBRATION_TESTS = 40
_STARTS = 30
_GIGABYTE = 1_000_000_000
_PLENTY = 1800.0

# One in four of each kind: arithmetic, text, files, a process. As suites of real projects do.
_SUITE = """
import hashlib, json, re, subprocess, sys
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_arithmetic(number):
    assert sum(i * i for i in range(400_000)) > number

@pytest.mark.parametrize("number", range({count}))
def test_text(number):
    text = json.dumps([{{"n": i, "hash": hashlib.sha1(str(i).encode()).hexdigest()}}
                       for i in range(6_000)])
    assert len(re.findall(r'"n": \\d+', text)) == 6_000

@pytest.mark.parametrize("number", range({count}))
def test_files(number, tmp_path):
    for i in range(150):
        (tmp_path / f"{{i}}.txt").write_text("x" * 5_000)
    assert sum(len(file.read_text()) for file in tmp_path.iterdir()) == 750_000

@pytest.mark.parametrize("number", range({count}))
def test_process(number):
    subprocess.run([sys.executable, "-c", "import json"], check=True)
"""

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run, in seconds; `processor` of all its processes."""

    wall: float
    processor: float


def cost(action: Callable[[], object]) -> Cost:
    """Do it and measure."""
    began, used = time.perf_counter(), _children_seconds()
    action()
    return Cost(time.perf_counter() - began, _children_seconds() - used)


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


# ------------------------------------------------------------------------------------ the suite


@dataclass(frozen=True, slots=True)
class Suite:
    """A test suite in a private copy, to be run bare and sandboxed by the same interpreter."""

    workspace: Workspace
    temporary: Path
    sandbox: BwrapSandbox

    def write(self, count: int) -> None:
        """So many tests of each kind."""
        self.workspace.write("test_suite.py", _SUITE.format(count=count).encode())

    def bare(self) -> None:
        """As the user would, with temporary files in memory, too, and the same environment."""
        environment = {
            "HOME": str(self.temporary),
            "TMPDIR": str(self.temporary),
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
        }
        _check(
            subprocess.run(
                self._argv(),
                cwd=self.workspace.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PLENTY,
                check=False,
            ).returncode
        )
        shutil.rmtree(self.temporary)
        self.temporary.mkdir()

    def sandboxed(self) -> None:
        """As validation does: byte code of installed packages is used."""
        command = Command(
            argv=self._argv(),
            environment={"PYTHONPYCACHEPREFIX": ""},
            limits=Limits(wall_seconds=_PLENTY),
            read_only=find_interpreter(Path(sys.executable)).paths,
            report=True,
        )
        _check(self.sandbox.run(command, self.workspace).exit_code)

    def _argv(self) -> tuple[str, ...]:
        return (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite.py")


def _check(exit_code: int | None) -> None:
    if exit_code != 0:
        raise SystemExit(f"the suite failed: {exit_code}")


def suite(sandbox: BwrapSandbox, place: Path, seconds: float, repeat: int) -> Figures:
    """In turn, so that what else the machine does weighs on both."""
    temporary = place / "temporary"
    temporary.mkdir()
    with empty_workspace(mount=Path("/srv/suite"), parent=place) as workspace:
        both = Suite(workspace, temporary, sandbox)
        both.write(_CALIBRATION_TESTS // 4)
        each = cost(both.bare).processor / _CALIBRATION_TESTS  # whatever else goes on
        both.write(round(seconds / each / 4))
        costs: dict[str, list[Cost]] = {"plain": [], "sandboxed": []}
        for _ in range(repeat):
            costs["plain"].append(cost(both.bare))
            costs["sandboxed"].append(cost(both.sandboxed))
            plain, sandboxed = (costs[kind][-1].wall for kind in costs)
            print(f"  suite: plain {plain:.2f} s  sandboxed {sandboxed:.2f} s", flush=True)
    wall = {kind: statistics.median(one.wall for one in found) for kind, found in costs.items()}
    used = {k: statistics.median(one.processor for one in found) for k, found in costs.items()}
    return {
        "suite: plain, s": wall["plain"],
        "suite: sandboxed, s": wall["sandboxed"],
        "suite: sandboxed / plain": wall["sandboxed"] / wall["plain"],
        "suite: sandboxed / plain, CPU": used["sandboxed"] / used["plain"],
    }


# ----------------------------------------------------------------------- starts, copies, output


def starts(sandbox: BwrapSandbox, place: Path) -> Figures:
    """A command that does nothing, and an interpreter that imports pytest."""
    python = find_interpreter(Path(sys.executable))
    imports = (sys.executable, "-c", "import pytest")
    unwritten = {"PYTHONPYCACHEPREFIX": ""}
    figures: Figures = {}
    with empty_workspace(mount=Path("/srv/start"), parent=place) as workspace:
        for name, argv, count in (("", ("true",), _STARTS), (" of pytest", imports, 5)):
            command = Command(argv, unwritten, read_only=python.paths, report=True)
            bare, inside = [], []
            for _ in range(count):
                bare.append(cost(partial(_quiet, argv)).wall)
                inside.append(cost(partial(sandbox.run, command, workspace)).wall)
            over = statistics.median(inside) - statistics.median(bare)
            figures[f"start-up{name} over plain, s"] = over
    return figures


def _quiet(argv: Sequence[str]) -> None:
    subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)


def copies(folder: Path, size: int, repeat: int) -> Figures:
    """A packed repository, as a clone is, and one whose objects were all just added."""
    repository = folder / f"target-{size}"
    make_target(repository, size)
    git = ("git", "-C", str(repository))
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()
    loose = {f"prepare {size:,} files, loose, s": _copies(repository, commit, 1)["prepare"]}
    subprocess.run([*git, "repack", "-qad"], timeout=600, check=True)
    found = _copies(repository, commit, repeat)
    return loose | {f"{name} {size:,} files, s": seconds for name, seconds in found.items()}


def _copies(repository: Path, commit: str, repeat: int) -> Figures:
    rounds = [_copy_round(repository, commit) for _ in range(repeat)]
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def _copy_round(repository: Path, commit: str) -> Figures:
    made: list[Workspace] = []
    prepared = cost(lambda: made.append(prepare_workspace(repository, commit, {})))
    copied = cost(lambda: made.append(made[0].copy()))
    removed = cost(made[1].close)
    made[0].close()
    return {
        "prepare": prepared.wall,
        "prepare (CPU)": prepared.processor,
        "copy": copied.wall,
        "copy (CPU)": copied.processor,
        "remove": removed.wall,
    }


def output(sandbox: BwrapSandbox, place: Path) -> Figures:
    """A gigabyte that is kept in part: the limit is set so high that all of it is read."""
    limits = Limits(output=_GIGABYTE // 50)
    argv = ("head", "-c", str(_GIGABYTE), "/dev/zero")
    with empty_workspace(mount=Path("/srv/output"), parent=place) as workspace:
        whole = cost(lambda: sandbox.run(Command(argv, limits=limits), workspace))
        endless = cost(lambda: sandbox.run(Command(("yes",)), workspace))
    return {"a gigabyte of output, s": whole.wall, "endless output until cut, s": endless.wall}


# --------------------------------------------------------------------------------------- the run


def main() -> None:
    """Measure, print a table, keep the result."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--suite-seconds", type=float, default=SUITE_SECONDS)
    options.add_argument("--no-save", action="store_true")
    chosen = options.parse_args()
    sandbox = BwrapSandbox()
    if not (probe := sandbox.probe()).available:
        raise SystemExit(probe.problem)
    print(f"{machine()}, load {os.getloadavg()[0]:.1f}\n", flush=True)
    memory = choose_directory(0)
    with (
        tempfile.TemporaryDirectory(prefix="patchshot-bench-") as folder,
        tempfile.TemporaryDirectory(prefix="patchshot-bench-", dir=memory) as place,
    ):
        figures = starts(sandbox, Path(place)) | output(sandbox, Path(place))
        for size in SIZES:
            figures |= copies(Path(folder), size, chosen.repeat)
        figures |= suite(sandbox, Path(place), chosen.suite_seconds, chosen.repeat)
    print_figures(figures, LIMITS)
    if not chosen.no_save:
        keep("sandbox", {"figures": figures, "limits": LIMITS})


if __name__ == "__main__":
    main()
