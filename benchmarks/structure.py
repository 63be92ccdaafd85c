"""`python -m benchmarks.structure`: the size of the program and the imports between its modules.

Prints one figure a line, then a table in Markdown with one row for each package. `agent demo` is
an `agent solve` that replays a recording.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent", "sandbox")
SHORT = 50
"""Lines below which a module with a single importer should be a part of that importer."""

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


def imported(tree: ast.AST, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of `known` that a module imports anywhere, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from (name if name in known else node.module,)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def public_classes(sources: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Public class name -> the modules that define a class of that name."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, source in sources.items():
        for name in _CLASS.findall(source):
            found[name].append(module)
    return {name: tuple(places) for name, places in sorted(found.items())}


def figures(root: Path = ROOT) -> Mapping[str, object]:
    """All figures that need no run of the program, by what they are called."""
    known = modules(root)
    sources = {name: path.read_text("utf-8") for name, path in known.items()}
    trees = {name: ast.parse(source) for name, source in sources.items()}
    lines = {name: source.count("\n") for name, source in sources.items()}
    lengths = [
        node.end_lineno - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    importers = Counter(
        used for name, tree in trees.items() for used in set(imported(tree, known)) - {name}
    )
    single = [name for name in known if importers[name] == 1 and known[name].stem != "__init__"]
    shared = {name: places for name, places in public_classes(sources).items() if len(places) > 1}
    return {
        "modules": len(known),
        "lines": sum(lines.values()),
        "functions": len(lengths),
        "lines of a function: median": statistics.median(lengths),
        "lines of a function: largest": max(lengths),
        "modules with one importer": len(single),
        f"of these below {SHORT} lines": sum(lines[name] < SHORT for name in single),
        "public class names with several meanings": len(shared),
    }


def loaded_by_solve() -> Collection[str]:
    """The names of our modules that the process of `agent demo` has loaded when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()[-1].split()


def package_of(module: str) -> str:
    """The package of `agent` that a module is in; `agent` itself, or `sandbox`."""
    first, *rest = module.split(".")
    inner = rest and first == "agent" and (ROOT / first / rest[0]).is_dir()
    return f"{first}.{rest[0]}" if inner else first


def table(loaded: Collection[str], root: Path = ROOT) -> Iterator[str]:
    """The rows of packages in Markdown, the largest first."""
    known = modules(root)
    sources = {name: path.read_text("utf-8") for name, path in known.items()}
    inside: dict[str, list[str]] = defaultdict(list)
    for name in known:
        inside[package_of(name)].append(name)
    lines = {one: sum(sources[n].count("\n") for n in names) for one, names in inside.items()}
    yield "| package | gives | modules | lines | loaded by `agent solve` |"
    yield "|---|---|---|---|---|"
    for one in sorted(inside, key=lambda one: (-lines[one], one)):
        used = sum(name in loaded for name in inside[one])
        gives = (ast.get_docstring(ast.parse(sources[one])) or "").split("\n\n")[0]
        first = " ".join(gives.split()).partition(". ")[0].rstrip(".:")
        yield f"| `{one}` | {first} | {len(inside[one])} | {lines[one]:,} | {used or 'no'} |"


def main() -> None:
    for name, value in figures().items():
        print(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}")
    loaded = loaded_by_solve()
    print(f"modules loaded by agent demo: {len(loaded)}")
    print("", *table(loaded), sep="\n")


if __name__ == "__main__":
    main()
