"""Prepares what a spec says: the interpreter, and the surroundings of the tests.

The project itself is never built; its source is on the import path. Its metadata is written beside
the source, so that `importlib.metadata.version` finds it.
"""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from agent.errors import ConfigurationError
from agent.settings import Settings
from agent.types.protocols import Snapshot
from agent.verify import COMMAND, RUNNERS, ProjectSetup, Suite
from agent.verify.environments.building import Environments
from agent.verify.environments.spec import Environment, read_spec
from agent.verify.runners.base import SHELL, parsed_toml, shell_words


def prepare_target(
    settings: Settings, snapshot: Snapshot, note: Callable[[str], None], project: str | None = None
) -> tuple[Path | None, ProjectSetup]:
    """Return a target's interpreter and surroundings. Raises ConfigurationError."""
    assert settings.environments is not None
    spec = read_spec(settings.environments)
    environments = Environments(spec, settings.cache_dir, note=note)
    project = project or spec.project_of(snapshot.root)
    version = read_static_version(project.partition("/")[2], snapshot)
    environment = environments.environment(project, version)
    around = surroundings(environment, snapshot)
    if settings.python is not None or settings.image is not None:
        return settings.python, around
    python, words = environments.build(environment)
    note(f"environment of {project or 'every project'}: {words}")
    return python, around


def surroundings(environment: Environment, snapshot: Snapshot, version: str = "") -> ProjectSetup:
    """Return all but the interpreter, which an image may bring. Raises ConfigurationError."""
    name = environment.metadata
    stated = environment.version or read_static_version(name, snapshot)
    number = stated or version or UNKNOWN_VERSION
    files = {
        path: text.replace("{version}", number).encode("utf-8", "surrogatepass")
        for path, text in environment.files.items()
    }
    if name:
        files.update(make_dist_info(name, number, snapshot))
    suite = choose_suite(environment.test, snapshot)
    return ProjectSetup(suite, environment.env, environment.paths, files)


# ------------------------------------------------------------------------------- test command

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_WHY = "the environment's test command"


def choose_suite(command: str, snapshot: Snapshot) -> Suite | None:
    """Choose how to run a spec's command; None for none. Raises ConfigurationError."""
    if not command:
        return None
    words = shell_words(command, "test")
    rest = words[1:] if _PYTHON.fullmatch(PurePosixPath(words[0]).name) else words
    if rest[:1] == ["-m"]:
        rest = rest[1:]
    program = PurePosixPath(rest[0]).name if rest else ""
    if program in ("pytest", "py.test"):
        return Suite("pytest", _WHY, tuple(rest[1:]))
    if rest[:1] == ["bin/test"]:  # SymPy's own runner; pytest runs its tests too
        return Suite("pytest", _WHY)
    if program == "unittest":
        return Suite("unittest", _WHY)
    if not program.endswith(("runtests.py", "manage.py")):
        return Suite(COMMAND, _WHY, (*SHELL, command))
    suite = RUNNERS["django"].detect(snapshot, ())
    if suite is None:
        raise ConfigurationError(f"test = {shlex.join(rest)!r}: the project has no such runner")
    more = (word for word in rest[1:] if word not in suite.argv)
    return replace(suite, why=_WHY, argv=(*suite.argv, *more))


# ----------------------------------------------------------------------------------- metadata
# https://packaging.python.org/en/latest/specifications/recording-installed-packages/

UNKNOWN_VERSION = "0"
"""The version when neither the spec, the tree nor the row states one."""

_ASSIGNED = re.compile(
    r"^__version__(?:\s*:\s*\w+)?\s*=\s*[\"']([0-9][\w.!+-]*)[\"']", re.MULTILINE
)
_PLAIN = re.compile(r"[0-9][\w.!+-]*")
_VERSION_FILES = ("__init__.py", "__about__.py", "__version__.py", "_version.py", "version.py")


def make_dist_info(name: str, version: str, snapshot: Snapshot) -> Mapping[str, bytes]:
    """Make the files of `NAME-VERSION.dist-info`, by path from the root of the tree."""
    folder = f"{re.sub(r'[-_.]+', '_', name)}-{version.replace('-', '_')}.dist-info"
    files = {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/INSTALLER": "patchshot\n",
    }
    groups = [
        "\n".join([f"[{group}]", *lines, ""])
        for group, lines in sorted(_entry_points(snapshot).items())
        if lines
    ]
    if groups:
        files[f"{folder}/entry_points.txt"] = "\n".join(groups)
    return {path: text.encode("utf-8", "replace") for path, text in files.items()}


def read_static_version(name: str, snapshot: Snapshot) -> str:
    """Read the version that the tree's files state literally, "" for none. Runs nothing."""
    table = _pyproject(snapshot)
    poetry = _table(_table(table, "tool"), "poetry")
    third = _setup_cfg(snapshot).get("metadata", {}).get("version")
    for value in (_table(table, "project").get("version"), poetry.get("version"), third):
        if isinstance(value, str) and _PLAIN.fullmatch(value.strip()):
            return value.strip()
    package = re.sub(r"[-.]+", "_", name)
    spellings = dict.fromkeys((package, package.lower()))
    for folder in (f"{prefix}{each}" for each in spellings for prefix in ("src/", "", "lib/")):
        for path in (f"{folder}/{file}" for file in _VERSION_FILES):
            match = _ASSIGNED.search(_text_of(path, snapshot))
            if match:
                return match[1]
    return ""


def _entry_points(snapshot: Snapshot) -> Mapping[str, list[str]]:
    """Read lines `name = value` by group from pyproject.toml (PEP 621), else from setup.cfg."""
    project = _table(_pyproject(snapshot), "project")
    tables = {"console_scripts": project.get("scripts"), **_table(project, "entry-points")}
    points = {
        group: [f"{name} = {value}" for name, value in sorted(table.items())]
        for group, table in tables.items()
        if isinstance(table, dict)
    }
    if points:
        return points
    setup = _setup_cfg(snapshot).get("options.entry_points", {})
    return {
        group: [line.strip() for line in text.splitlines() if "=" in line]
        for group, text in setup.items()
    }


def _text_of(path: str, snapshot: Snapshot) -> str:
    return snapshot.text(path) if path in snapshot.files else ""


def _pyproject(snapshot: Snapshot) -> Mapping[str, Any]:
    return parsed_toml(_text_of("pyproject.toml", snapshot))


def _setup_cfg(snapshot: Snapshot) -> Mapping[str, Mapping[str, str]]:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(_text_of("setup.cfg", snapshot))
    except configparser.Error:
        return {}
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = value.get(name)
    return table if isinstance(table, dict) else {}
