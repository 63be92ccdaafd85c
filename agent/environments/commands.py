"""The test command of a spec, as something that single test files can be given to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from agent.errors import ConfigurationError
from agent.protocols import Snapshot
from agent.validation.frameworks.base import Suite
from agent.validation.frameworks.opaque import COMMAND
from agent.validation.frameworks.registry import FRAMEWORKS

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_WHY = "the environment's test command"

# Runners whose surroundings are read from the tree, by the end of the script's path.
_BY_SCRIPT = (("runtests.py", "django"), ("manage.py", "django"), ("bin/test", "bin-test"))


def suite_of(command: str, snapshot: Snapshot) -> Suite | None:
    """How the command's tests are run; None for no command.

    pytest, unittest, Django's runners and `bin/test` are given test files; whatever else is run as
    it stands, on all of its tests. Raises ConfigurationError for what is no command line, or names
    a runner that the project has not.
    """
    if not command:
        return None
    words = _split(command)
    rest = words[1:] if _PYTHON.fullmatch(PurePosixPath(words[0]).name) else words
    module, options = (rest[1], rest[2:]) if rest[:1] == ["-m"] and rest[1:] else ("", rest[1:])
    program = module or (PurePosixPath(rest[0]).name if rest else "")
    if program in ("pytest", "py.test"):
        return Suite("pytest", _WHY, tuple(options))
    if program == "unittest":
        return Suite("unittest", _WHY)
    for end, framework in _BY_SCRIPT:
        if rest and rest[0].endswith(end):
            return _of_script(framework, rest, snapshot)
    return Suite(COMMAND, _WHY, tuple(words))


def _of_script(framework: str, words: Sequence[str], snapshot: Snapshot) -> Suite:
    suite = FRAMEWORKS[framework].detect(snapshot)
    if suite is None:
        raise ConfigurationError(f"test = {shlex.join(words)!r}: the project has no such runner")
    options = [word for word in words[1:] if word not in suite.argv]
    return replace(suite, why=_WHY, argv=(*suite.argv, *options))


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"test = {command!r}: {error}; quote it as for a shell") from None
    if not words:
        raise ConfigurationError("test: the command is empty; leave it out to choose by the files")
    return words
