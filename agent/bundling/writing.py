"""Makes the bundle: what the caller's process runs, then the carried files, then `agent_main`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat

from agent import __version__
from agent.bundling.closure import Closure, close, own_modules
from agent.bundling.quoting import as_dict
from agent.bundling.requirements import declared, needed
from agent.bundling.thinning import thinned

# The contract's limit for an upload.
MAX_BYTES = 2 * 1024 * 1024

# The worker, and the process that it starts by name.
_ROOTS = ("agent.miner.worker", "agent.retrieval.worker")

# Imported where an option asks for them, which nothing in a miner's container does.
LEFT_OUT = (
    "agent.bundling",
    "agent.cli",
    "agent.commands",
    "agent.corpora",  # corpora beside the code are asked for by a setting
    "agent.environments",  # --environments: a miner's container has one of its own
    "agent.evaluation",
    "agent.llm.exchange",  # --record and --replay
    "agent.llm.local_model",  # a model in this process: its weights cannot be carried
    "agent.llm.local_worker",
    "agent.llm.recording",
    "agent.llm.replay",
    "agent.planning",  # widening = plan, and the action `find`
    "agent.precomputed",
    "agent.retrieval.local_embedder",  # --embed local: likewise
    "agent.retrieval.several",
    "agent.services.corpora",
    "agent.services.evidence",
    "agent.stores",
    "agent.training",
)

# Only drawn on a terminal.
_NOT_NEEDED = frozenset({"rich", "typer"})

_FRONT = "agent/miner/front.py"
_STAND_INS = {"agent/retrieval/compression.py": "agent/bundling/uncompressed.py"}

# What packages carry beside modules; run or read by path.
_DATA_SUFFIXES = frozenset({".j2", ".toml"})
_DATA_FOLDERS = ("agent/validation/inside",)

# The static vectors (4 MB) exceed what the contract takes; the ranker fits as text.
_MODELS = ("agent/models/ranker.npz",)

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
    left_out: tuple[str, ...]
    sha256: str


def make_bundle(root: Path | None = None, *, limit: int = MAX_BYTES) -> Bundle:
    """Bundle the sources below `root` (None: this installation's). The same bytes each time.

    Where they would exceed `limit` bytes, without comments and the details of docstrings.

    Raises ConfigurationError where the declared packages are not known.
    """
    root = root or Path(__file__).resolve().parents[2]
    whole = _make(root, thin=False)
    return whole if len(whole.text.encode("utf-8")) <= limit else _make(root, thin=True)


def _make(root: Path, *, thin: bool) -> Bundle:
    closure = close(own_modules(root), _ROOTS, leave_out=LEFT_OUT, known=declared(root))
    requirements = needed(root, closure.foreign - _NOT_NEEDED)
    files = carried_files(root, closure)
    if thin:
        files = {name: _thin(name, text) for name, text in files.items()}
    body = "".join(
        (
            (root / _FRONT).read_text("utf-8"),
            f"\n\n_REQUIREMENTS = {pformat(requirements, width=96)}\n\n",
            "# Modules, prompts and numbers by path. They are written to a private folder, which\n",
            "# is removed in the end, and read from there by the worker.\n",
            as_dict("_FILES", files),
            _TAIL,
        )
    )
    sha256 = hashlib.sha256(body.encode("utf-8")).hexdigest()
    head = (
        f"# Patchshot {__version__} in one file, made by `agent bundle`; the sources are below.\n"
    )
    return Bundle(
        f"{head}{_HASH_LINE}{sha256}\n{body}",
        tuple(files),
        tuple(requirement for _, _, requirement in requirements),
        closure.left_out,
        sha256,
    )


def carried_files(root: Path, closure: Closure) -> Mapping[str, str]:
    """Path -> text of everything that the worker reads, in order of path."""
    from agent.models.texts import SUFFIX, arrays_to_text

    paths = {path.relative_to(root).as_posix() for path in closure.modules.values()}
    for name, path in closure.modules.items():
        if path.name == "__init__.py":
            paths.update(_data(root, path.parent))
        elif name == "agent.validation.frameworks.runners":
            paths.update(
                found.relative_to(root).as_posix()
                for folder in _DATA_FOLDERS
                for found in (root / folder).glob("*.py")
            )
    texts = {path: (root / _STAND_INS.get(path, path)).read_text("utf-8") for path in paths}
    for model in _MODELS:
        if (root / model).is_file():
            texts[f"{model}{SUFFIX}"] = arrays_to_text((root / model).read_bytes())
    return dict(sorted(texts.items()))


def _thin(name: str, text: str) -> str:
    return thinned(text) if name.endswith(".py") else text


def _data(root: Path, folder: Path) -> list[str]:
    return [
        path.relative_to(root).as_posix()
        for path in folder.iterdir()
        if path.suffix in _DATA_SUFFIXES
    ]


def split_header(text: str) -> tuple[str, str]:
    """The stated hash and the body it is of; ("", text) for what is no bundle."""
    first, _, rest = text.partition("\n")
    line, _, body = rest.partition("\n")
    if not first.startswith("# Patchshot ") or not line.startswith(_HASH_LINE):
        return "", text
    return line.removeprefix(_HASH_LINE), body
