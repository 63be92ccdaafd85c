"""Checks a file as the uploads and loaders of the miner contract do (docs/guide/miner.md)."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.miner.bundle.writing import MAX_BYTES, split_header

# The upload's text scan refuses `b64decode`, `decompress`, `fromhex` "and the like", also in
# comments. Its list is not public; these are the ways in which Python unpacks or runs hidden text.
HIDING_WORDS = (
    "b16decode", "b32decode", "b64decode", "b85decode", "a85decode", "base64", "a2b_", "unhexlify",
    "fromhex", "decompress", "marshal", "pickle.load", "exec(", "eval(", "__import__",
)  # fmt: skip

_NEEDED = ("entry", "hash")  # before the file is loaded

# Loading compiles a megabyte and a half; the answer to an empty input then starts a worker.
_SECONDS = 120.0

# The fourth version's loader: the module is not in `sys.modules`. An empty input is a task that has
# no problem; the answer shows whether a worker starts here.
_LOADER = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("agent_main_module", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert spec.name not in sys.modules
try:
    said = module.agent_main({"problem_statement": None})
except Exception as error:
    said = error
print(json.dumps([type(said).__name__, str(said)]))
"""


@dataclass(frozen=True, slots=True)
class BundleCheck:
    """One check: its name, whether it passed, and what was found."""

    check: str
    ok: bool
    detail: str


def check_bundle(path: Path) -> tuple[BundleCheck, ...]:
    """All checks of a file, in the contract's order. A file that is not a bundle is not run.

    Raises OSError when the file cannot be read.
    """
    data = path.read_bytes()
    found = [BundleCheck("size", len(data) <= MAX_BYTES, f"{len(data):,} of {MAX_BYTES:,} bytes")]
    try:
        text = data.decode("utf-8")
        tree = ast.parse(text)
    except (UnicodeDecodeError, SyntaxError, ValueError) as error:
        return (*found, BundleCheck("source", False, f"no Python source in UTF-8: {error}"))
    found.append(BundleCheck("source", True, "Python in UTF-8"))
    found.append(_entry(tree))
    found.append(_words(text))
    found.append(_hash(text))
    # A file that is not a bundle, or was changed since, is not run.
    unfit = [finding.check for finding in found if finding.check in _NEEDED and not finding.ok]
    detail = f"not loaded, as the check of the {' and the '.join(unfit)} failed"
    found.append(BundleCheck("loader", False, detail) if unfit else _loads(path))
    return tuple(found)


def _entry(tree: ast.Module) -> BundleCheck:
    """A literal `def agent_main(input)` at the top level; a name bound otherwise is refused."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "agent_main":
            parameters = [argument.arg for argument in node.args.posonlyargs + node.args.args]
            fits = bool(parameters) and len(parameters) - len(node.args.defaults) <= 1
            shown = f"line {node.lineno}: def agent_main({', '.join(parameters)})"
            return BundleCheck("entry", fits, shown)
    return BundleCheck("entry", False, "there is no `def agent_main` at the top level")


def _words(text: str) -> BundleCheck:
    hits = list(_hits(text))
    if not hits:
        return BundleCheck("words", True, "nothing that unpacks or runs a hidden text")
    return BundleCheck("words", False, f"a text scan refuses {'; '.join(hits[:3])}")


def _hits(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for word in HIDING_WORDS:
            if word in line:
                yield f"{word!r} in line {number}: {line.strip()[:60]}"


def _hash(text: str) -> BundleCheck:
    stated, body = split_header(text)
    if not stated:
        return BundleCheck("hash", False, "no header of `agent bundle`")
    actual = hashlib.sha256(body.encode("utf-8")).hexdigest()
    return BundleCheck("hash", actual == stated, actual if actual == stated else "edited since")


def _loads(path: Path) -> BundleCheck:
    """Load and call the file with this interpreter, in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="patchshot-check-") as folder:
        try:
            done = subprocess.run(
                # -B: no bytecode is left beside the file.
                [sys.executable, "-I", "-B", "-c", _LOADER, str(path.resolve())],
                cwd=folder,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return BundleCheck("loader", False, f"no answer within {_SECONDS:g} s")
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    if done.returncode != 0 or not lines:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return BundleCheck("loader", False, said[-1] if said else f"exit code {done.returncode}")
    kind, message = json.loads(lines[-1])
    ok = kind == "AgentFailure" and "problem_statement" in message
    return BundleCheck("loader", ok, f"loads without sys.modules; an empty input: {message}")
