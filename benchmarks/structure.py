"""`python -m benchmarks.structure`: the size of each package, and what `agent solve` loads of it.

`agent demo` is an `agent solve` that replays a recording.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent", "sandbox")

_CLASS = re.compile(r"^class ([^\W_]\w*)", re.MULTILINE)

_LOADED = """
import sys
import agent.run.pipeline, agent.wiring
from agent.cli import main
sys.argv = ["agent", "demo", "--quiet"]
try:
    main()
except SystemExit:
    pass
own = [name for name in sys.modules if name.split(".")[0] in ("agent", "sandbox", "prompts")]
print(" ".join(own), file=sys.stderr)
"""


def modules(root: Path = ROOT) -> Mapping[str, Path]:
    """Every module of `agent` and `sandbox`, by dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def public_classes(sources: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Public class name -> the modules that define a class of that name."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, source in sources.items():
        for name in _CLASS.findall(source):
            found[name].append(module)
    return {name: tuple(places) for name, places in sorted(found.items())}


def loaded_by_solve() -> Collection[str]:
    """The names of our modules that the process of `agent demo` has loaded when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()[-1].split()


def main() -> None:
    packages: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    loaded = loaded_by_solve()
    for name, path in modules().items():
        package = ".".join(path.relative_to(ROOT).parts[:-1][:2])
        packages[package].append((path.read_text("utf-8").count("\n"), name in loaded))
    print(f"{'package':<20} modules  lines  loaded by `agent solve`")
    for package, parts in sorted(packages.items()):
        lines, used = sum(n for n, _ in parts), sum(is_loaded for _, is_loaded in parts)
        print(f"{package:<20} {len(parts):>7} {lines:>6,} {used:>7}")


if __name__ == "__main__":
    main()
