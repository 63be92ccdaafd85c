"""Finds the Python that runs the target's tests. Reads files only: nothing is executed here.

In order: the one that was asked for; the active environment, unless it is Patchshot's own; the
repository's `.venv` or `venv`; Patchshot's own environment when it is the active one (a developer
who installed Patchshot beside the project's dependencies); `python3` on PATH; this interpreter.
Of the last three, guesses all, the first that can import pytest is taken; the others are the user's
word. What they can import is asked inside the sandbox: a repository's `.venv` may be anything.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import ConfigurationError
from agent.validation.frameworks.toolchain import Toolchain
from sandbox.types import SandboxError

_FOLDERS = (".venv", "venv")
_VERSION = re.compile(r"^version(?:_info)?\s*=\s*([0-9]+(?:\.[0-9]+)*)", re.MULTILINE)
_PYENV_NAME = re.compile(r"[\w.+-]+")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`path` is what is run: a virtual environment's own link, never resolved away.

    `read_only` are the host paths that it needs to see. `version` is "" until it is known.
    `certain`: the user's choice or the project's own, not a guess.
    """

    path: Path
    why: str
    read_only: tuple[Path, ...] = ()
    version: str = ""
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Tools:
    """What runs the tests: `pytest` is its version, None where it cannot be imported.

    `interpreter` is None where none works inside the sandbox; `problem` then says why. `toolchain`
    holds the programs other than Python that the project's framework needs.
    """

    interpreter: Interpreter | None
    pytest: str | None = None
    problem: str = ""
    toolchain: Toolchain = field(default_factory=Toolchain)

    def needed(self) -> Interpreter:
        """The interpreter. Raises SandboxError, with the `problem`, where none works."""
        if self.interpreter is None:
            raise SandboxError(self.problem)
        return self.interpreter


def choose_interpreter(
    repo_root: Path,
    explicit: Path | None,
    virtual_env: str | None,
    *,
    tracked: Callable[[str], bool] = lambda _: False,
    search_path: str | None = None,
) -> Interpreter:
    """The first of `candidates`. Raises ConfigurationError for an `explicit` one that is none."""
    return candidates(repo_root, explicit, virtual_env, tracked=tracked, search_path=search_path)[0]


def candidates(
    repo_root: Path,
    explicit: Path | None,
    virtual_env: str | None,
    *,
    tracked: Callable[[str], bool] = lambda _: False,
    search_path: str | None = None,
) -> tuple[Interpreter, ...]:
    """Interpreters that exist, best first; at least this one. Their `read_only` is left empty.

    `tracked` says whether a path belongs to the repository's commit: an environment that does is
    not the user's and is not taken. `search_path` is PATH (default: the process's own).

    Raises ConfigurationError when `explicit` is not an executable file.
    """
    if explicit is not None:
        return (_explicit(explicit, repo_root),)
    found: dict[Path, Interpreter] = {}
    for path, why, certain in _possible(repo_root, virtual_env, tracked, search_path):
        # One interpreter under two names is one; its first, strongest reason stays.
        found.setdefault(path, Interpreter(path, why, (), _version(path), certain))
    return tuple(found.values())


def _explicit(path: Path, repo_root: Path) -> Interpreter:
    file = path.expanduser().absolute()
    if file.is_dir():
        file = _environment_python(file) or file
    real = _resolve_shim(file, repo_root) if _is_executable(file) else None
    if real is None:
        raise ConfigurationError(f"--python {path}: not an interpreter; name an executable file")
    return Interpreter(real, "chosen with --python", (), _version(real))


def _possible(
    repo_root: Path,
    virtual_env: str | None,
    tracked: Callable[[str], bool],
    search_path: str | None,
) -> Iterator[tuple[Path, str, bool]]:
    active = _environment_python(Path(virtual_env).absolute()) if virtual_env else None
    own = virtual_env is not None and _same(Path(virtual_env), Path(sys.prefix))
    if active and not own:
        yield active, "the active virtual environment", True
    for name in _FOLDERS:
        path = _environment_python(repo_root / name)
        parts = (
            (name, f"{name}/pyvenv.cfg", f"{name}/bin", f"{name}/bin/{path.name}") if path else ()
        )
        if path and not any(map(tracked, parts)):
            yield path, f"the repository's {name}", True
    if active and own:
        yield active, "the active virtual environment, which is Patchshot's own", False
    for path in _on_path(search_path, repo_root):
        yield path, "python3 on PATH", False
    yield Path(sys.executable), "the Python that runs Patchshot", False


def _environment_python(folder: Path) -> Path | None:
    """The interpreter of a virtual environment (or any prefix: conda's have no pyvenv.cfg)."""
    for name in ("python", "python3"):
        path = folder / "bin" / name
        if _is_executable(path):
            return path
    return None


def _on_path(search_path: str | None, repo_root: Path) -> Iterator[Path]:
    """The first real `python3` on PATH. Scripts there are resolved (pyenv) or passed over."""
    folders = os.environ.get("PATH", "") if search_path is None else search_path
    for path in (Path(folder) / "python3" for folder in folders.split(":")):
        if path.is_absolute() and _is_executable(path):
            real = _resolve_shim(path, repo_root)
            if real is not None:
                yield real
                return


def _resolve_shim(path: Path, repo_root: Path) -> Path | None:
    """The interpreter behind a pyenv shim; the path itself when it is a program; else None."""
    try:
        with path.open("rb") as file:
            is_script = file.read(2) == b"#!"
    except OSError:
        return None
    if not is_script:
        return path
    root = path.parent.parent
    if path.parent.name != "shims" or not (root / "versions").is_dir():
        return None
    for name in _pyenv_versions(root, repo_root):
        real = root / "versions" / name / "bin" / path.name
        if _is_executable(real):
            return real
    return None


def _pyenv_versions(root: Path, repo_root: Path) -> Iterator[str]:
    """Versions in pyenv's order: the nearest `.python-version` above the repository, the global."""
    files = [folder / ".python-version" for folder in (repo_root, *repo_root.parents)]
    for file in (*files, root / "version"):
        try:
            names = file.read_text("utf-8").split()
        except (OSError, UnicodeDecodeError):
            continue
        # A name is one folder: `..` would lead out of pyenv's own.
        yield from (n for n in names if _PYENV_NAME.fullmatch(n) and not n.startswith("."))


def _version(path: Path) -> str:
    """The version that a virtual environment's pyvenv.cfg names, "" when there is none."""
    if path == Path(sys.executable):
        return ".".join(map(str, sys.version_info[:3]))
    try:
        found = _VERSION.search((path.parent.parent / "pyvenv.cfg").read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""
    return found[1] if found else ""


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _same(left: Path, right: Path) -> bool:
    return os.path.realpath(left) == os.path.realpath(right)
