"""`agent` as a user starts it: a process of its own, in a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.cli.application import app
from tests.conftest import ROOT

AGENT = (sys.executable, "-m", "agent")
"""How it is started; with `agent_environment` it is the package of this checkout."""


# A shell without job control starts background jobs with SIGINT ignored, and children inherit that;
# Python then rightly leaves it ignored. GNU coreutils 8.31 or later.
INTERRUPTIBLE = ("env", "--default-signal=INT")
"""Prefix of the command of a process that Ctrl-C can end, whatever started the tests."""


def agent_environment(home: Path, **variables: str) -> dict[str, str]:
    """A fresh environment: a home, a cache below it, and `variables`, which win.

    Nothing is the caller's but PATH: no key, no proxy, no setting, no locale.
    """
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "PATCHSHOT_CACHE_DIR": str(home / "cache"),
        **variables,
    }


def call_agent(*arguments: str | Path, **options: object) -> int:
    """Run a command in this process, and return its exit code.

    `options`: those of the command line, `max_cost=1` for `--max-cost 1`; True is a flag.
    """
    words = [str(one) for one in arguments]
    for name, value in options.items():
        given = value if isinstance(value, tuple) else (value,)
        for one in given:
            words.append(f"--{name.replace('_', '-')}")
            words += [] if one is True else [str(one)]
    with pytest.raises(SystemExit) as ended:
        app.main(words, prog_name="agent", standalone_mode=False)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def run_agent(
    *arguments: str,
    home: Path,
    cwd: Path | None = None,
    prefix: Sequence[str] = (),
    limit: float = 100.0,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run `agent` for at most `limit` seconds, in `home` or `cwd`; `prefix`: what starts it."""
    return subprocess.run(
        [*prefix, *AGENT, *arguments],
        cwd=cwd or home,
        env=agent_environment(home, **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
