"""Commands that a project's own configuration names for its tests, and what they amount to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent.validation.frameworks.base import Suite

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*(?:\.exe)?")

# Words before the command proper: measuring, a display, an environment.
_WRAPPERS = frozenset({"coverage", "env", "nice", "time", "xvfb-run"})

# Options of pytest that say how tests are found and imported; others choose or decorate.
_KEPT = re.compile(
    r"--(?:ds|dc|import-mode|pyargs|doctest-modules|asyncio-mode|strict-markers)\b.*"
)
_KEPT_WITH_VALUE = ("-c", "-o", "--ds", "--dc", "--import-mode", "--asyncio-mode")

# Other programs that run tests: the command is worth running as it stands.
_OTHER_RUNNERS = frozenset(
    {
        "behave", "green", "manage.py", "nose2", "nosetests", "robot", "runtests.py", "stestr",
        "trial", "ward", "zope-testrunner",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Configured:
    """One command line, in words, with where it stands."""

    argv: tuple[str, ...]
    source: str
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "."


def suites(commands: Iterable[Configured]) -> tuple[Suite, ...]:
    """The suites that commands amount to, in order; none of what is no test command."""
    found = (_suite(command) for command in commands)
    return tuple(suite for suite in found if suite is not None)


def _suite(command: Configured) -> Suite | None:
    words = _unwrapped(command.argv)
    why = f"{command.source} runs {' '.join(command.argv[:4])}"
    cwd = _inside(command.cwd)
    if not words or cwd is None:
        return None
    program, rest = PurePosixPath(words[0]).name, words[1:]
    if program in ("pytest", "py.test"):
        return Suite("pytest", why, _kept(rest), ".", command.environment)
    if program == "unittest":
        return Suite("unittest", why, (), ".", command.environment)
    if program in _OTHER_RUNNERS:
        return Suite("command", why, command.argv, cwd, command.environment)
    return None


def _unwrapped(argv: Sequence[str]) -> tuple[str, ...]:
    """From the runner's own name on: `coverage run -m pytest x` is `pytest x`."""
    words = list(argv)
    while words:
        name = PurePosixPath(words[0]).name
        if name in _WRAPPERS:
            words = _after_options(words[1:], ("run",) if name == "coverage" else ())
        elif _PYTHON.fullmatch(name):
            words = _after_options(words[1:], ())
        elif words[0] == "-m" or "=" in words[0]:
            words = words[1:]
        else:
            break
    return tuple(words)


def _after_options(words: Sequence[str], commands: Sequence[str]) -> list[str]:
    """Without the options of a wrapper; `-m` is kept, since what follows is the runner."""
    rest = list(words)
    while rest and (rest[0] in commands or (rest[0].startswith("-") and rest[0] != "-m")):
        takes_value = rest[0] in ("-W", "-X", "-s", "--rcfile", "--source") and len(rest) > 1
        rest = rest[2:] if takes_value else rest[1:]
    return rest


def _kept(words: Sequence[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for number, word in enumerate(words):
        if word in _KEPT_WITH_VALUE and number + 1 < len(words):
            kept += [word, words[number + 1]]
        elif _KEPT.fullmatch(word) and word not in _KEPT_WITH_VALUE:
            kept.append(word)
    return tuple(kept)


def _inside(cwd: str) -> str | None:
    """The folder as a path of the tree; None where it leads out of it."""
    parts = [part for part in cwd.split("/") if part not in ("", ".")]
    if cwd.startswith("/") or ".." in parts or "\0" in cwd:
        return None
    return "/".join(parts) or "."
