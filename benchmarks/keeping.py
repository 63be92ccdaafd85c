"""What the benchmarks share: the machine in words, a table of figures, a result that is kept."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> str:
    """What ran this, without names of hosts or users."""
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{os.cpu_count()} x {model}, Python {platform.python_version()}"


def print_figures(figures: Mapping[str, float], most: Mapping[str, float]) -> None:
    """One figure a line, marked where it misses its bound."""
    for name, value in figures.items():
        mark = ""
        if name in most:
            mark = f"  (limit {most[name]:g}{', missed' if value > most[name] else ''})"
        digits = 0 if value >= 100 else 3 if value >= 0.01 or not value else 6
        print(f"{name:<36} {value:>12,.{digits}f}{mark}")


def keep(name: str, found: Mapping[str, Any]) -> None:
    """Keep a result with its date, machine and load."""
    RESULTS.mkdir(exist_ok=True)
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    about = {"date": day, "machine": machine(), "load average": os.getloadavg()[0]}
    path = RESULTS / f"{day}-{name}.json"
    path.write_text(json.dumps({**about, **found}, indent=1) + "\n")
    print(f"\nkept in {path.relative_to(RESULTS.parent.parent)}")
