"""The guard alone: it kills the run of a dead maker, and ends quietly otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox import killing
from sandbox.supervise import Guard
from tests.support.sandboxes import ROOT

MARK = "SANDBOX_RUN=0123456789abcdef"
KILLER = (sys.executable, "-I", "-S", killing.__file__, MARK, "", "")

# Tells the session or not, then ends without a farewell.
MAKER = """
import os, sys
from sandbox.supervise import Guard
guard = Guard(sys.argv[2:])
if sys.argv[1]:
    guard.tell(sys.argv[1])
os._exit(1)
"""


def sleeper(**variables: str) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own with these variables alone."""
    return subprocess.Popen(["sleep", "60"], env=variables, start_new_session=True)


def abandoned(*arguments: str) -> None:
    subprocess.run([sys.executable, "-c", MAKER, *arguments], cwd=ROOT, check=False, timeout=20)


@pytest.mark.parametrize("told", [True, False])
def test_the_run_of_a_dead_maker_is_killed_and_nobody_else(told: bool) -> None:
    name, _, value = MARK.partition("=")
    with sleeper(**{name: value}) as marked, sleeper() as of_session, sleeper() as stranger:
        try:
            abandoned(str(of_session.pid) if told else "", *KILLER)
            assert marked.wait(20) == -9
            if told:
                assert of_session.wait(20) == -9
            time.sleep(1)  # it looks a second time
            assert of_session.poll() == (-9 if told else None)
            assert stranger.poll() is None
        finally:
            for process in (marked, of_session, stranger):
                process.kill()


@pytest.mark.parametrize("told", [True, False])
def test_it_lets_go_when_the_run_is_over(told: bool) -> None:
    name, _, value = MARK.partition("=")
    with sleeper(**{name: value}) as marked:
        try:
            before = children()
            with Guard(KILLER) as guard:
                assert len(children() - before) == 1
                if told:
                    guard.tell(str(marked.pid))
            assert children() == before
            time.sleep(0.3)
            assert marked.poll() is None
        finally:
            marked.kill()


def children() -> set[str]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii")
    return set(listed.split())
