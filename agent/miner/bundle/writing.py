"""Writes the bundle: the code that the caller's process runs, the carried files, `agent_main`."""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat

from agent import __version__
from agent.miner.bundle.imports import Closure, close, declared, needed, own_modules

# The contract's limit for an upload.
MAX_BYTES = 2 * 1024 * 1024

# The worker of a task, and the worker process that it starts by name.
_ROOTS = ("agent.miner.worker", "agent.retrieval.index.pool")

# Imported only where an option asks for them; a miner's container uses none of these options.
LEFT_OUT = (
    "agent.miner.bundle",
    "agent.cli",
    "agent.search",  # other corpora, plans, and the action `find`
    "agent.wiring.search",
    "agent.verify.environments",  # --environments: a miner's container has its own
    "agent.evaluation",
    "agent.llm.recording",  # --record and --replay
    "agent.retrieval.embedding.local",  # the weights of a local model cannot be carried
    # --image: a miner runs in a container and starts none. (`sandbox.container.image` finds the
    # interpreters of its own.)
    "sandbox.container.backend",
    "sandbox.container.engine",
    "sandbox.container.launch",
    "sandbox.container.options",
    "sandbox.container.process",
)

# Used on a terminal only, or by the target's own interpreter (`agent.verify.inside`).
_NOT_NEEDED = frozenset({"rich", "click", "pytest", "_pytest", "py"})

_FRONT = "agent/miner/front.py"
_STAND_INS = {"agent/shared/cache/compression.py": "agent/miner/bundle/uncompressed.py"}

# Files beside modules that are run or read by path.
_DATA_SUFFIXES = frozenset({".j2", ".toml"})
_DATA_FOLDERS = ("agent/verify/inside",)

# The static vectors (4 MB) exceed what the contract takes; the ranker fits as text.
_MODELS = ("agent/retrieval/weights/ranker.npz",)

_INDENTATION = re.compile(r"\A +(?=\S)")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)

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

    Comments, docstrings and wide indentation are left out if the bundle would exceed
    `limit` bytes.
    Raises ConfigurationError when the declared packages are not known.
    """
    root = root or Path(__file__).resolve().parents[3]
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
    from agent.retrieval.weights import SUFFIX, arrays_to_text

    paths = {path.relative_to(root).as_posix() for path in closure.modules.values()}
    for name, path in closure.modules.items():
        if path.name == "__init__.py":
            paths.update(_data(root, path.parent))
        elif name == "agent.verify.runners.base":
            paths.update(
                found.relative_to(root).as_posix()
                for folder in _DATA_FOLDERS
                for found in (root / folder).glob("*.py")
            )
    texts = {path: (root / _STAND_INS.get(path, path)).read_text("utf-8") for path in paths}
    for name, text in closure.faces.items():
        texts[closure.modules[name].relative_to(root).as_posix()] = text
    for model in _MODELS:
        if (root / model).is_file():
            texts[f"{model}{SUFFIX}"] = arrays_to_text((root / model).read_bytes())
    return dict(sorted(texts.items()))


def _thin(name: str, text: str) -> str:
    return without_comments(text) if name.endswith(".py") else text


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


# ------------------------------------------------------------------------------ texts as literals


def as_literal(text: str) -> str:
    """A raw string in three quotes where that says the same, else one literal a line."""
    for quotes in ("'''", '"""'):
        literal = f"r{quotes}{text}{quotes}"
        if quotes not in text and _says(literal, text):
            return literal
    lines = text.splitlines(keepends=True) or [""]
    return "(\n" + "".join(f"{line!a}\n" for line in lines) + ")"


def as_dict(name: str, texts: Mapping[str, str]) -> str:
    """An assignment of a dict of texts, in their order."""
    entries = "".join(f"{key!r}: {as_literal(text)},\n" for key, text in texts.items())
    return f"{name} = {{\n{entries}}}\n"


def _says(literal: str, text: str) -> bool:
    try:
        return bool(ast.literal_eval(literal) == text)
    except (SyntaxError, ValueError):
        return False


# ------------------------------------------------------------------- sources without their comments


def without_comments(source: str) -> str:
    """`source` without comment lines and docstrings below its own, indented by one space a level.

    The docstrings of the module and of classes keep their first line: the schema of the reply has
    those of its classes.
    """
    lines = source.splitlines(keepends=True)
    dropped = set(_comment_lines(source))
    for first, last, short in _docstrings(ast.parse(source), lines):
        lines[first - 1] = short
        dropped.update(range(first + 1 if short else first, last + 1))
    text = set(_lines_in_strings(source))
    return "".join(
        line if number in text else _INDENTATION.sub(_narrow, line)
        for number, line in enumerate(lines, 1)
        if number not in dropped
    )


def _narrow(spaces: re.Match[str]) -> str:
    return " " * (len(spaces[0]) // 4)


def _lines_in_strings(source: str) -> Iterator[int]:
    """Line numbers that begin inside a string."""
    opened: list[int] = []  # since Python 3.12 an f-string is several tokens
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            opened.append(token.start[0])
        elif kind in ("STRING", "FSTRING_END"):
            first = opened.pop() if kind == "FSTRING_END" else token.start[0]
            yield from range(first + 1, token.end[0] + 1)


def _comment_lines(source: str) -> Iterator[int]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            yield token.start[0]


def _docstrings(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, what takes their place) of docstrings that stand alone."""
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, _DOCUMENTED) else None
        if text is None:
            continue
        place = node.body[0]  # type: ignore[attr-defined]
        first, last, indent = (
            place.lineno,
            place.end_lineno,
            lines[place.lineno - 1][: place.col_offset],
        )
        alone = not indent.strip() and lines[last - 1].rstrip().endswith('"""')
        if alone and isinstance(node, _FUNCTIONS) and len(node.body) > 1:
            yield first, last, ""
        elif alone and last > first:
            yield first, last, f"{indent}{text.splitlines()[0]!a}\n"
