"""Finds the Python that a spec names on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ConfigurationError

_VERSION = re.compile(r"\d+(?:\.\d+){0,2}")
_ANSWER_SECONDS = 20.0

# Of the base installation: an environment must not rest on another one that may be removed.
_QUESTION = (
    "import sys; print(sys.version.split()[0]); "
    "print(getattr(sys, '_base_executable', '') or sys.executable)"
)


@dataclass(frozen=True, slots=True)
class HostPython:
    """An installed interpreter, by its own words."""

    path: Path
    version: str


def find_python(name: str, *, search_path: str | None = None) -> HostPython:
    """The Python of a spec: a version ("3.11"), a name on PATH, an absolute path; "": ours.

    A version is looked for as `python3.11` on PATH, then among what pyenv has installed.
    Raises ConfigurationError.
    """
    tried: list[str] = []
    for path in _candidates(name, search_path):
        found = _ask(path)
        if found is not None and _fits(name, found.version):
            return found
        tried.append(str(path) if found is None else f"{path} is {found.version}")
    seen = f" (tried: {', '.join(tried)})" if tried else ""
    raise ConfigurationError(
        f"python = {name!r}: no such Python here{seen}; install it, or name the path of one"
    )


def _candidates(name: str, search_path: str | None) -> Iterator[Path]:
    if not name:
        yield Path(sys.executable)
    elif name.startswith(("/", "~")):
        yield Path(name).expanduser()
    elif _VERSION.fullmatch(name):
        yield from _of_version(name, search_path)
    else:
        found = shutil.which(name, path=search_path)
        if found:
            yield Path(found).absolute()


def _of_version(version: str, search_path: str | None) -> Iterator[Path]:
    short = ".".join(version.split(".")[:2])
    found = shutil.which(f"python{short}", path=search_path)
    if found:
        yield Path(found).absolute()
    roots = [os.environ.get("PYENV_ROOT", ""), str(Path("~/.pyenv").expanduser())]
    for root in dict.fromkeys(filter(None, roots)):
        yield from sorted(Path(root, "versions").glob(f"{short}*/bin/python{short}"), reverse=True)
    if f"{sys.version_info[0]}.{sys.version_info[1]}" == short:
        yield Path(sys.executable)


def _ask(path: Path) -> HostPython | None:
    """What it says of itself; None where it does not start (a shim without a version, say)."""
    try:
        done = subprocess.run(
            [str(path), "-I", "-S", "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            timeout=_ANSWER_SECONDS,
            check=True,
        )
        version, executable = done.stdout.decode("utf-8", "surrogateescape").splitlines()
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return HostPython(Path(executable), version)


def _fits(name: str, version: str) -> bool:
    wanted = name.split(".") if _VERSION.fullmatch(name) else []
    return version.split(".")[: len(wanted)] == wanted
