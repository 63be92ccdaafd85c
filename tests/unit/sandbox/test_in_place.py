"""The guard alone: it kills the run of a dead maker, and ends quietly otherwise."""

from __future__ import annotations

import subprocess
import sys
import time

from sandbox import killing
from sandbox.supervise import Guard
from tests.support.sandboxes import ROOT

MARK = {"SANDBOX_RUN": "0123456789abcdef"}
KILLER = (sys.executable, "-I", "-S", killing.__file__, "SANDBOX_RUN=0123456789abcdef", "", "")

# Ends without a farewell.
MAKER = """
import os, sys
from sandbox.supervise import Guard
guard = Guard(sys.argv[1:])
os._exit(1)
"""


def sleeper(variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own with these variables alone."""
    return subprocess.Popen(["sleep", "60"], env=variables, start_new_session=True)


def test_the_run_of_a_dead_maker_is_killed_and_nobody_else() -> None:
    with sleeper(MARK) as marked, sleeper({}) as stranger:
        try:
            subprocess.run([sys.executable, "-c", MAKER, *KILLER], cwd=ROOT, timeout=20)
            assert marked.wait(20) == -9
            time.sleep(1)  # it looks a second time
            assert stranger.poll() is None
        finally:
            marked.kill()
            stranger.kill()


def test_it_lets_go_when_the_run_is_over() -> None:
    with sleeper(MARK) as marked:
        try:
            with Guard(KILLER):
                pass
            time.sleep(0.3)
            assert marked.poll() is None
        finally:
            marked.kill()
