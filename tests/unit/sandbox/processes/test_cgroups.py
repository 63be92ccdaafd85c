"""Control groups: the files of both versions in a plain directory, and this machine's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cgroups import (
    Bound,
    ControlGroup,
    Hierarchy,
    find_hierarchies,
    make_group,
    sweep_groups,
    usable_hierarchies,
)
from sandbox.killing import is_abandoned, new_name
from sandbox.types import Limits, SandboxError

MIB = 1024 * 1024
ROOT = Path(__file__).resolve().parents[4]
LIMITS = Limits(memory=100 * MIB, processes=20)
MEMORY, PROCESSES, CPU = Bound.MEMORY, Bound.PROCESSES, Bound.CPU


ALL = frozenset(Bound)
OLD = [
    ("cpu,cpuacct", frozenset({CPU}), False),
    ("memory/job", frozenset({MEMORY}), False),
    ("pids", frozenset({PROCESSES}), False),
]


@pytest.mark.parametrize(
    ("groups", "own", "expected"),
    [
        ({}, "0::/", []),
        # Version 2: the nearest group that hands its controllers on. With both versions mounted
        # each bound is taken once.
        (
            {".": "cpu memory pids", "a.slice": "memory pids", "a.slice/b": "", "memory": ""},
            "0::/a.slice/b",
            [("a.slice", ALL, True)],
        ),
        (
            {"unified": "memory pids", "unified/a": ""},
            "0::/a",
            [("unified", ALL, True)],
        ),
        ({".": "cpu pids"}, "0::/", []),
        ({".": "memory"}, "0::/", []),
        ({".": "", "..": "memory pids"}, "0::/", []),  # above what is mounted
        # Version 1: a hierarchy for each controller. A container sees its own group as the top.
        (
            dict.fromkeys(("memory/job", "memory", "pids", "cpu,cpuacct", "freezer"), ""),
            "3:memory:/job\n2:cpu,cpuacct:/\n1:pids:/docker/abc",
            OLD,
        ),
        ({"memory": ""}, "1:memory:/elsewhere", [("memory", frozenset({MEMORY}), False)]),
        ({"memory": ""}, "1:memory:/../..", [("memory", frozenset({MEMORY}), False)]),
    ],
)
def test_hierarchies_are_those_that_a_group_can_be_made_in(
    tmp_path: Path, groups: dict[str, str], own: str, expected: list[tuple[str, object, bool]]
) -> None:
    root = tmp_path / "cgroup"
    root.mkdir()
    (tmp_path / "own").write_text(own + "\n")
    for place, controllers in groups.items():
        (root / place).mkdir(parents=True, exist_ok=True)
        (root / place / "cgroup.procs").touch()
        (root / place / "cgroup.subtree_control").write_text(controllers)
    if "cpu,cpuacct" in groups:
        (root / "cpuacct").symlink_to("cpu,cpuacct")
    assert [
        (str(one.directory.relative_to(root)), one.bounds, one.unified)
        for one in find_hierarchies(tmp_path / "own", root)
    ] == expected


# ---- one run's groups


@pytest.fixture
def unified(tmp_path: Path) -> Hierarchy:
    return Hierarchy(tmp_path, frozenset(Bound), unified=True)


@pytest.fixture
def real() -> Iterator[ControlGroup]:
    if not (hierarchies := usable_hierarchies()):
        pytest.skip("no control groups can be had here")
    with make_group(LIMITS, hierarchies) as group:
        yield group


def contents(directory: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(directory.iterdir())}


def test_version_2_is_set_entered_and_told(unified: Hierarchy) -> None:
    group = make_group(LIMITS, (unified,))
    (directory,) = group.directories()
    assert contents(directory) == {
        "memory.max": str(100 * MIB),
        "memory.oom.group": "1",
        "memory.swap.max": "0",
        "pids.max": "21",  # one is the sandbox's own
    }
    assert (group.cpu_seconds(), group.memory_kills(), group.refused_processes()) == (0, 0, 0)
    (directory / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    (directory / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n")
    (directory / "pids.events").write_text("max 3\n")
    assert (group.cpu_seconds(), group.memory_kills(), group.refused_processes()) == (2.5, 1, 3)


def test_version_1_is_set_and_told_by_its_own_files(tmp_path: Path) -> None:
    hierarchies = []
    for name, bound in (("m", MEMORY), ("p", PROCESSES), ("c", CPU)):
        (tmp_path / name).mkdir()
        hierarchies.append(Hierarchy(tmp_path / name, frozenset({bound}), unified=False))
    group = make_group(LIMITS, tuple(hierarchies))
    assert contents(tmp_path / "m" / group.name) == {
        "memory.limit_in_bytes": str(100 * MIB),
        "memory.memsw.limit_in_bytes": str(100 * MIB),
    }
    assert contents(tmp_path / "p" / group.name) == {"pids.max": "21"}
    (tmp_path / "c" / group.name / "cpuacct.usage").write_text("1500000000\n")
    (tmp_path / "m" / group.name / "memory.oom_control").write_text("under_oom 0\noom_kill 2\n")
    assert (group.cpu_seconds(), group.memory_kills()) == (1.5, 2)


def test_a_group_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    here = Hierarchy(tmp_path, frozenset(), unified=True)
    missing = Hierarchy(tmp_path / "absent", frozenset(Bound), unified=True)
    with pytest.raises(SandboxError, match="control group"):
        make_group(LIMITS, (here, missing))
    assert list(tmp_path.iterdir()) == []


def test_a_command_enters_by_itself(real: ControlGroup) -> None:
    argv = (*real.entry(), "cat", "/proc/self/cgroup", "--")
    said = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    assert said.stdout.count(real.name) == len(real.hierarchies)


def test_groups_of_a_killed_agent_are_swept_and_others_stay(real: ControlGroup) -> None:
    code = (
        "import os, signal, subprocess; from sandbox.cgroups import *; "
        "from sandbox.types import Limits; group = make_group(Limits(), usable_hierarchies()); "
        "subprocess.Popen([*group.entry(), 'sleep', '60'], stdout=subprocess.DEVNULL); "
        "print(group.name, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    dead = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=20
    )
    name = dead.stdout.strip()
    assert name.startswith("patchshot-")
    sweep_groups()
    assert not any((one.directory / name).exists() for one in real.hierarchies)
    assert all(directory.is_dir() for directory in real.directories())


@pytest.mark.parametrize(
    ("changes", "abandoned"),
    [
        ({}, False),
        ({3: "4194305"}, True),  # above the largest pid
        ({4: "1"}, True),  # the pid is another process's by now
        ({1: "1", 4: "1"}, False),  # another process namespace: its pids mean nothing here
        ({2: "00000000", 4: "1"}, False),  # another boot or machine
        ({0: "other", 4: "1"}, False),
        ({5: "0123456789abcdef", 4: "1"}, False),
    ],
)
def test_only_what_surely_has_no_owner_any_more_is_swept(
    tmp_path: Path, changes: dict[int, str], abandoned: bool
) -> None:
    parts = dict(enumerate(new_name().split("-")))
    name = "-".join({**parts, **changes}.values())
    (tmp_path / name).mkdir()
    assert is_abandoned(name) is abandoned
    swept = sweep_groups((Hierarchy(tmp_path, frozenset(Bound), unified=True),))
    assert swept == ((tmp_path / name,) if abandoned else ())
    assert (tmp_path / name).is_dir() is not abandoned
