"""An agent dies of SIGKILL in the middle of a run: what it leaves, and what the next one finds.

The agent is a separate process, and the tests look from outside for everything it had.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.cgroups import find_hierarchies, sweep_groups, usable_hierarchies
from sandbox.files import sweep_stale

ROOT = Path(__file__).resolve().parents[3]

AGENT = """
import sys
from pathlib import Path
import sandbox.in_place
from sandbox.bwrap import BwrapSandbox
from sandbox.landlock import LandlockSandbox
from sandbox.in_place import ProcessSandbox
from sandbox.types import Command
from sandbox.workspace import empty_workspace
if sys.argv[4:] == ["no groups"]:
    sandbox.in_place.usable_hierarchies = lambda: ()
script = '''
setsid setsid sleep $0 >/dev/null 2>&1 &
(exec setsid env -i sleep $0 >/dev/null 2>&1 &)
(sleep $0 &)
trap "" TERM INT HUP
touch started; printf x >"$SANDBOX_REPORT"
sleep $0
'''
with empty_workspace(mount=Path("/srv/project"), parent=Path(sys.argv[1])) as workspace:
    argv = ("/bin/sh", "-c", script, sys.argv[2])
    backends = {"bwrap": BwrapSandbox, "landlock": LandlockSandbox, "process": ProcessSandbox}
    backends[sys.argv[3]]().run(Command(argv=argv, report=True), workspace)
"""


@pytest.fixture
def mark() -> str:
    """Return an argument of sleep(1) that no other process has."""
    return f"3600.{uuid.uuid4().int % 10**9}"


def _mounts() -> list[str]:
    """Return the mounts of this machine, without those of podman in a parallel test."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if "/containers/storage" not in line]


def test_a_killed_agent_leaves_no_process_and_no_mount(
    bwrap_works: None, tmp_path: Path, mark: str
) -> None:
    mounts = _mounts()
    groups = _groups()
    killed = _killed_in_a_run(tmp_path, mark)
    _until(lambda: not _running(mark), "processes of the run are dead")
    assert _mounts() == mounts
    left = list(tmp_path.iterdir())
    assert [path.name.split("-")[3] for path in left] == [str(killed)]
    assert sweep_stale(tmp_path) == tuple(left)
    assert list(tmp_path.iterdir()) == []
    sweep_groups()
    assert {name for name in _groups() - groups if f"-{killed}-" in name} == set()


@pytest.mark.parametrize(
    "backend", [("landlock",), ("landlock", "no groups"), ("process",)], ids=" ".join
)
def test_nothing_of_a_run_without_namespaces_outlives_a_killed_agent(
    backend: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path, mark: str
) -> None:
    """This includes daemons of another session with a dead parent and an empty environment."""
    own_uid = "landlock" in backend and os.geteuid() == 0
    if not own_uid and ("no groups" in backend or not usable_hierarchies()):
        pytest.skip("neither control groups nor a uid of its own: such a daemon is not found")
    if "landlock" in backend:
        request.getfixturevalue("landlock_works")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & stat.S_ISVTX:
            break
        folder.chmod(0o711)  # the command's uid has to pass
    groups = _groups()
    killed = _killed_in_a_run(tmp_path, mark, *backend)
    _until(lambda: not _running(mark), "processes of the run are dead")
    assert sweep_stale(tmp_path)
    assert list(tmp_path.iterdir()) == []
    sweep_groups()
    assert {name for name in _groups() - groups if f"-{killed}-" in name} == set()


def _killed_in_a_run(parent: Path, mark: str, *backend: str) -> int:
    with _agent(parent, mark, *backend) as agent:
        try:
            _until(lambda: _has_started(parent) and _running(mark), "the run has started")
        finally:
            agent.kill()
    return agent.pid


def _agent(parent: Path, mark: str, *backend: str) -> subprocess.Popen[bytes]:
    arguments = (str(parent), mark, *(backend or ("bwrap",)))
    return subprocess.Popen([sys.executable, "-c", AGENT, *arguments], cwd=ROOT)


def _has_started(parent: Path) -> bool:
    return any(parent.glob("*/tree/started"))


def _running(mark: str) -> bool:
    return any(mark in _arguments(entry) for entry in Path("/proc").iterdir())


def _arguments(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_text().split("\0") if process.name.isdigit() else []
    except OSError:
        return []


def _groups() -> set[str]:
    return {path.name for one in find_hierarchies() for path in one.directory.glob("patchshot-*")}


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)
