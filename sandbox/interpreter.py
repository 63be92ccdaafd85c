"""What one Python interpreter needs to see of the file system in order to run."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox.types import SandboxError

# Isolated, without site: no code of the environment, of .pth files or of the directory is run.
_QUESTION = (
    "import json,sys; print(json.dumps([sys.executable, sys.base_prefix, sys.base_exec_prefix]))"
)

_ANSWER_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`executable` starts it inside a sandbox that shows `paths` read-only."""

    executable: Path
    paths: tuple[Path, ...]


def interpreter_paths(python: Path) -> tuple[Path, ...]:
    """The paths for `Command.read_only`; see `find_interpreter`."""
    return find_interpreter(python).paths


def find_interpreter(python: Path) -> Interpreter:
    """Ask `python` where it lives: its environment, its installation, and the links between.

    `python` may be a virtual environment's, a system's, or a launcher (a shim of pyenv) that
    starts the real one; the answer then names the real one. It is run on the host, isolated and
    without site: it must be one that the user chose and this user or root owns.

    Raises SandboxError when it is not there, owned by somebody else, or does not answer.
    """
    _check_owner(python)
    executable, *prefixes = _ask(python)
    environment = executable.parent.parent
    configuration = environment / "pyvenv.cfg"
    places = {executable, *prefixes}
    if configuration.is_file():
        places |= {environment, *_homes(configuration)}
    # A prefix may be /usr with the rest of the system, or lie below another one.
    return Interpreter(executable, tuple(sorted(place for place in places if place.exists())))


def _check_owner(python: Path) -> None:
    try:
        owner = python.stat().st_uid
    except OSError as error:
        raise SandboxError(f"no interpreter at {python}: {error.strerror}") from error
    if owner not in (0, os.geteuid()):
        raise SandboxError(f"{python} belongs to another user (uid {owner}); it is not run")


def _ask(python: Path) -> tuple[Path, ...]:
    """Executable, prefix and exec-prefix of the installation, as absolute paths."""
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


def _homes(configuration: Path) -> tuple[Path, ...]:
    """The installation that a virtual environment names (pyvenv.cfg, PEP 405): `home = .../bin`."""
    text = configuration.read_text(encoding="utf-8", errors="replace")
    entries = (line.partition("=") for line in text.splitlines())
    return tuple(Path(value.strip()).parent for key, _, value in entries if key.strip() == "home")
