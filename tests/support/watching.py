"""Processes for tests of what watches them."""

from __future__ import annotations

import subprocess


def started(*argv: str) -> subprocess.Popen[bytes]:
    """A process with piped streams, as `sandbox.supervise.watch` takes it."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
