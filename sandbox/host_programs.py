"""The programs of this machine: which may run outside of the sandbox, and what they need inside.

Nothing that lies in the work tree of a target, or is reached through it, runs outside.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox.mounts import follow_links
from sandbox.small_files import read_small_file
from sandbox.types import SandboxError


def hide_programs(work_tree: Path) -> None:
    """Take relative folders, and those in `work_tree`, off the PATH of this process.

    Else a repository could provide the programs that are started by their names: git, bwrap, cp.
    A work tree that holds the user's home keeps its folders, because they are the user's own.
    """
    folders = [f for f in os.environ.get("PATH", os.defpath).split(os.pathsep) if f[:1] == "/"]
    if not Path.home().resolve().is_relative_to(work_tree.resolve()):
        folders = [folder for folder in folders if not _comes_from(work_tree, Path(folder))]
    os.environ["PATH"] = os.pathsep.join(folders)


def _comes_from(work_tree: Path | None, path: Path) -> bool:
    """Whether a path lies in the work tree, or a link on the way to it does."""
    if work_tree is None:
        return False
    try:
        real, links = follow_links(path)
    except SandboxError:  # a loop of links
        return True
    steps = (path.absolute(), real, *(link.target for link in links))
    roots = {work_tree.absolute(), work_tree.resolve()}
    return any(step.is_relative_to(root) for step in steps for root in roots)


# Asked with -I -S, so that no code of the environment, of .pth files or of the directory runs.
_QUESTION = (
    "import json,sys; print(json.dumps([sys.executable, sys.base_prefix, sys.base_exec_prefix]))"
)

_ANSWER_SECONDS = 20.0

_CONFIGURATION = "pyvenv.cfg"

# The module that Python itself looks for to find its prefix (getpath.py), and its place in PyPy.
_STANDARD_LIBRARY = ("lib*/python3*/os.py", "lib*/pypy3*/os.py", "lib-python/3/os.py")


@dataclass(frozen=True, slots=True)
class InterpreterPaths:
    """An interpreter: `executable` starts it in a sandbox that shows `paths` read-only."""

    executable: Path
    paths: tuple[Path, ...]


def find_interpreter(python: Path, *, work_tree: Path | None = None) -> InterpreterPaths:
    """Find the environment of `python`, its installation, and the links between them.

    `python` may belong to a virtual environment or the system, or be a launcher (a shim of pyenv);
    the answer then names the real interpreter. A virtual environment, and whatever lies in
    `work_tree` or is reached through it, is described by its files and is not run. Any other
    interpreter runs once on the host, isolated and without site, so it must be one that the user
    chose and that this user or root owns.

    Raises SandboxError when it is missing, belongs to somebody else, or does not answer.
    """
    _check_owner(python)
    if _is_environment(python) or _comes_from(work_tree, python):
        return _described(python.absolute(), work_tree)
    executable, *prefixes = _ask(python)
    if _is_environment(executable) or _comes_from(work_tree, executable):
        return _described(executable, work_tree)
    # A prefix may be /usr with the rest of the system, or lie below another one.
    paths = {executable, *prefixes}
    return InterpreterPaths(executable, tuple(sorted(path for path in paths if path.exists())))


def _is_environment(python: Path) -> bool:
    return (python.absolute().parent.parent / _CONFIGURATION).is_file()


def _described(python: Path, work_tree: Path | None) -> InterpreterPaths:
    """Describe an interpreter by its place, its links and its pyvenv.cfg (PEP 405).

    A folder is shown only if it is a virtual environment or holds a Python installation, so that
    neither a link nor a configuration file can show any other folder of the user.
    """
    environment = python.parent.parent
    real, _ = follow_links(python)
    prefixes = {real.parent.parent, environment}
    paths = {python}
    if _is_environment(python):
        whole = follow_links(environment)[0]
        if work_tree is not None and work_tree.resolve().is_relative_to(whole):
            raise SandboxError(f"{environment} is no virtual environment: it holds the repository")
        paths.add(environment)
        prefixes.update(_find_homes(environment / _CONFIGURATION))
    paths |= {prefix for prefix in prefixes if _is_installation(prefix)}
    return InterpreterPaths(python, tuple(sorted(paths)))


def _is_installation(prefix: Path) -> bool:
    """Whether a folder holds the standard library of CPython or PyPy."""
    return prefix != Path("/") and any(
        next(prefix.glob(pattern), None) is not None for pattern in _STANDARD_LIBRARY
    )


def _check_owner(python: Path) -> None:
    try:
        owner = python.stat().st_uid
    except OSError as error:
        raise SandboxError(f"no interpreter at {python}: {error.strerror}") from error
    if owner not in (0, os.geteuid()):
        raise SandboxError(f"{python} belongs to another user (uid {owner}); it is not run")


def _ask(python: Path) -> tuple[Path, ...]:
    """Return executable, prefix and exec-prefix of the installation as absolute paths."""
    try:
        done = subprocess.run(
            [str(python.absolute()), "-I", "-S", "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            timeout=_ANSWER_SECONDS,
            check=True,
        )
        answer = json.loads(done.stdout)
        return tuple(Path(place).absolute() for place in answer)
    except (OSError, subprocess.SubprocessError, ValueError, TypeError) as error:
        raise SandboxError(f"{python} does not work as a Python interpreter: {error}") from error


def _find_homes(configuration: Path) -> tuple[Path, ...]:
    """Find the installation that a pyvenv.cfg names (PEP 405): `home = .../bin`."""
    try:
        text = (read_small_file(configuration) or b"").decode("utf-8", "replace")
    except OSError as error:
        raise SandboxError(f"{configuration} cannot be read: {error.strerror}") from None
    entries = (line.partition("=") for line in text.splitlines())
    homes = (Path(value.strip()) for key, _, value in entries if key.strip() == "home")
    return tuple(home.parent for home in homes if home.is_absolute())
