"""`agent bundle`: the program as one plain source file, as the miner contract takes it.

It holds the code that the caller's process runs, all carried files as texts, and `agent_main`.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from pprint import pformat

from agent import __version__
from agent.errors import ConfigurationError

# The contract's limit for an upload.
MAX_BYTES = 2 * 1024 * 1024

PACKAGES = ("agent", "sandbox", "prompts")

# A miner's container uses none of these.
LEFT_OUT = (
    "agent/__main__.py",
    "agent/api.py",
    "agent/batch",
    "agent/cli",
    "agent/datasets",
    "agent/evaluation",
    "agent/llm/recording.py",  # --record and --replay
    "agent/miner/bundle.py",
    "agent/report",
    "agent/results",
    "agent/search",  # other corpora, plans, and the action `find`
    "agent/verify/environments",  # --environments: a miner's container has its own
    "agent/wiring/search.py",
)

# Packages used on a terminal only, or by the target's own interpreter (`agent.verify.inside`).
_NOT_NEEDED = frozenset({"rich", "click", "pytest", "_pytest", "py"})

_FRONT = "agent/miner/front.py"
_CARRIED_SUFFIXES = frozenset({".py", ".j2", ".toml"})

# The static vectors (4 MB) exceed what the contract takes.
_MODELS = ("agent/retrieval/weights/ranker.json",)

# The upload's text scan refuses `b64decode`, `decompress`, `fromhex` "and the like", also in
# comments. Its list is not public; these are the ways in which Python unpacks or runs hidden text.
HIDING_WORDS = (
    "b16decode", "b32decode", "b64decode", "b85decode", "a85decode", "base64", "a2b_", "unhexlify",
    "fromhex", "decompress", "marshal", "pickle.load", "exec(", "eval(", "__import__",
)  # fmt: skip
_HIDING = re.compile(f"({'|'.join(map(re.escape, HIDING_WORDS))})")

_HASH_LINE = "# sha256 of all that follows this line: "
_TAIL = '''

def agent_main(input):
    """A patch for `input["problem_statement"]`: a str, or {"patch": str} for the first version.

    Raises AgentFailure where there is none; TransportFailure if a model could not be reached.
    """
    return answer(input, Program(files=_FILES, requirements=_REQUIREMENTS), os.environ)
'''


@dataclass(frozen=True, slots=True)
class Bundle:
    """One source file. `files` are the paths it carries; `requirements` what it needs installed."""

    text: str
    files: tuple[str, ...]
    requirements: tuple[str, ...]
    sha256: str


def make_bundle(root: Path | None = None) -> Bundle:
    """Bundle the sources below `root` (None: this installation's). The same bytes each time.

    Raises ConfigurationError.
    """
    root = root or Path(__file__).resolve().parents[2]
    files = carried_files(root)
    requirements = needed(files)
    entries = "".join(f"{key!r}: {as_literal(text)},\n" for key, text in files.items())
    body = "".join(
        (
            (root / _FRONT).read_text("utf-8"),
            f"\n\n_REQUIREMENTS = {pformat(requirements, width=96)}\n\n",
            "# Modules, prompts and numbers by path; the worker reads them in its own folder.\n",
            f"_FILES = {{\n{entries}}}\n",
            _TAIL,
        )
    )
    sha256 = hashlib.sha256(body.encode("utf-8")).hexdigest()
    head = f"# Patchshot {__version__} in one file, made by `agent bundle`.\n"
    lines = tuple(requirement for _, _, requirement in requirements)
    return Bundle(f"{head}{_HASH_LINE}{sha256}\n{body}", tuple(files), lines, sha256)


def carried_files(root: Path) -> Mapping[str, str]:
    """Path -> text of everything that the worker reads, in order of path."""
    texts = {}
    for package in PACKAGES:
        for path in (root / package).rglob("*"):
            name = path.relative_to(root).as_posix()
            left_out = any(name == part or name.startswith(f"{part}/") for part in LEFT_OUT)
            if path.suffix in _CARRIED_SUFFIXES and not left_out:
                texts[name] = path.read_text("utf-8")
    for model in _MODELS:
        if (root / model).is_file():
            texts[model] = (root / model).read_text("utf-8")
    return dict(sorted(texts.items()))


def as_literal(text: str) -> str:
    """A literal of the text; words that a text scan refuses have their first letter escaped."""
    parts = [
        f'"\\x{ord(part[0]):02x}{part[1:]}"' if part in HIDING_WORDS else _plain_literal(part)
        for part in _HIDING.split(text)
        if part
    ]
    if len(parts) == 1 and parts[0].startswith("r"):
        return parts[0]
    return "(\n" + "\n".join(parts or ['""']) + ")"


def _plain_literal(text: str) -> str:
    for quotes in ("'''", '"""'):
        literal = f"r{quotes}{text}{quotes}"
        with contextlib.suppress(SyntaxError, ValueError):
            if quotes not in text and ast.literal_eval(literal) == text:
                return literal
    return "\n".join(f"{line!a}" for line in text.splitlines(keepends=True))


# ------------------------------------------------------------------------------------- requirements


def needed(files: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """(import name, package, requirement) of the declared packages that code or strings name."""
    declared = declared_packages()
    names: set[str] = set()
    for name, text in files.items():
        if name.endswith(".py"):
            names.update(_names(ast.parse(text)))
    used = names & declared.keys() - _NOT_NEEDED
    return tuple((name, _distribution(declared[name]), declared[name]) for name in sorted(used))


def _names(tree: ast.Module) -> Iterator[str]:
    """The first parts of imported names, and of strings that may name a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(".")[0]


def declared_packages() -> Mapping[str, str]:
    """Import name -> requirement, of each installed package that is declared without an extra.

    Raises ConfigurationError.
    """
    try:
        given = metadata.requires("patchshot") or []
    except metadata.PackageNotFoundError:
        raise ConfigurationError(
            "the declared packages are not known: install Patchshot (pip install -e .) first"
        ) from None
    lines = [line for line in given if "extra ==" not in line]
    requirements = {_distribution(line): line for line in lines}
    return {
        name: requirements[distribution]
        for name, distributions in sorted(metadata.packages_distributions().items())
        for distribution in map(_distribution, distributions)
        if distribution in requirements
    }


def _distribution(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


# ------------------------------------------------------------------------------------------- checks

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
    """One check: its name, whether it passed, and what was seen."""

    check: str
    ok: bool
    detail: str


def check_bundle(path: Path) -> tuple[BundleCheck, ...]:
    """All checks of a file, in the contract's order. A file that is not a bundle is not run.

    Raises OSError when the file cannot be read.
    """
    data = path.read_bytes()
    size = BundleCheck("size", len(data) <= MAX_BYTES, f"{len(data):,} of {MAX_BYTES:,} bytes")
    try:
        text = data.decode("utf-8")
        tree = ast.parse(text)
    except (UnicodeDecodeError, SyntaxError, ValueError) as error:
        return size, BundleCheck("source", False, f"no Python source in UTF-8: {error}")
    entry, signature = _entry(tree), _hash(text)
    if entry.ok and signature.ok:
        loader = _loads(path)
    else:
        loader = BundleCheck("loader", False, "not loaded, as an earlier check failed")
    source = BundleCheck("source", True, "Python in UTF-8")
    return size, source, entry, _words(text), signature, loader


def _entry(tree: ast.Module) -> BundleCheck:
    """A literal `def agent_main(input)` at the top level; a name bound otherwise is refused."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "agent_main":
            parameters = ast.unparse(node.args)
            shown = f"line {node.lineno}: def agent_main({parameters})"
            return BundleCheck("entry", parameters == "input", shown)
    return BundleCheck("entry", False, "there is no `def agent_main` at the top level")


def _words(text: str) -> BundleCheck:
    for number, line in enumerate(text.splitlines(), 1):
        match = _HIDING.search(line)
        if match:
            reason = f"a text scan refuses {match[0]!r} in line {number}: {line.strip()[:60]}"
            return BundleCheck("words", False, reason)
    return BundleCheck("words", True, "nothing that unpacks or runs a hidden text")


def _hash(text: str) -> BundleCheck:
    first, _, rest = text.partition("\n")
    line, _, body = rest.partition("\n")
    if not first.startswith("# Patchshot ") or not line.startswith(_HASH_LINE):
        return BundleCheck("hash", False, "no header of `agent bundle`")
    actual = hashlib.sha256(body.encode("utf-8")).hexdigest()
    is_same = actual == line.removeprefix(_HASH_LINE)
    return BundleCheck("hash", is_same, actual if is_same else "edited since")


def _loads(path: Path) -> BundleCheck:
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
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return BundleCheck("loader", False, errors[-1] if errors else f"exit {done.returncode}")
    kind, message = json.loads(lines[-1])
    ok = kind == "AgentFailure" and "problem_statement" in message
    return BundleCheck("loader", ok, f"loads without sys.modules; an empty input: {message}")
