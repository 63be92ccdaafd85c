"""Runs the command in this process and ends with its peak memory on stderr."""

from __future__ import annotations

import resource
import sys

from agent.cli import main

if __name__ == "__main__":
    try:
        main()
    finally:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"peak_mb={peak:.0f}", file=sys.stderr)
