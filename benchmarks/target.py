"""The repository that is measured: real Python files, and one small package with a bug."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

FILES = 2500

ISSUE = """# Totals are rounded per line instead of once

`invoice_total` rounds every line before it adds them up, so an invoice of three lines of 0.333
comes out as 0.99 instead of 1.0.
"""

_PACKAGE = {
    "billing_example/__init__.py": "",
    "billing_example/invoice.py": (
        '"""Sums of invoices."""\n\n\n'
        "def invoice_total(lines: list[float]) -> float:\n"
        '    """The total, in whole cents."""\n'
        "    return sum(round(line, 2) for line in lines)\n"
    ),
    "billing_example/test_invoice.py": (
        "from billing_example.invoice import invoice_total\n\n\n"
        "def test_total():\n    assert invoice_total([1.0, 2.5]) == 3.5\n"
    ),
}

REPLY = json.dumps(
    {
        "thought": "Round once.",
        "edits": [
            {
                "path": "billing_example/invoice.py",
                "search": "    return sum(round(line, 2) for line in lines)\n",
                "replace": "    return round(sum(lines), 2)\n",
            }
        ],
        "reproduction_test": {
            "path": "billing_example/test_rounding.py",
            "content": (
                "from billing_example.invoice import invoice_total\n\n\n"
                "def test_rounds_once():\n    assert invoice_total([0.333] * 3) == 1.0\n"
            ),
        },
        "missing": [],
    }
)


def make_target(root: Path, count: int) -> tuple[int, int]:
    """Make and commit the repository; gives its number of Python files and bytes."""
    files = size = 0
    for name, text in _PACKAGE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        files += 1
    for source, name in _sources():
        if files >= count:
            break
        data = source.read_bytes()
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        files, size = files + 1, size + len(data)
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.invalid")
    for arguments in (("init", "-q"), ("add", "-A", "-f"), ("commit", "-q", "-m", "base")):
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True, timeout=300)
    return files, size


def _sources() -> Iterator[tuple[Path, Path]]:
    """The standard library without its tests, then installed packages, in path order."""
    for place, prefix in (("stdlib", "stdlib"), ("purelib", "packages")):
        folder = Path(sysconfig.get_path(place))
        for path in sorted(folder.rglob("*.py")):
            inner = path.relative_to(folder)
            if "site-packages" in inner.parts or {"test", "tests"} & set(inner.parts):
                continue
            yield path, Path(prefix, inner)
