"""`agent` as a user starts it: a process of its own, in a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import ROOT

AGENT = (sys.executable, "-m", "agent")
"""How it is started; with `agent_environment` it is the package of this checkout."""


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
