"""Metadata for a project that is not installed, so that `importlib.metadata.version` finds it.

The project itself is never built; its source is on the import path. Many projects read name,
version and entry points of their own installation, so these are written beside the source, as the
files of the tree state them. Format:
https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from agent.types.protocols import Snapshot

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
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", ""]
    files = {
        f"{folder}/METADATA": "\n".join(lines).encode("utf-8", "replace"),
        f"{folder}/INSTALLER": b"patchshot\n",
    }
    entry_points = _rendered(_entry_points(snapshot))
    if entry_points:
        files[f"{folder}/entry_points.txt"] = entry_points.encode("utf-8", "replace")
    return files


def read_static_version(name: str, snapshot: Snapshot) -> str:
    """Read the version that the tree's files state literally, "" for none. Runs nothing."""
    project = _table(_pyproject(snapshot), "project")
    poetry = _table(_table(_pyproject(snapshot), "tool"), "poetry")
    setup = _setup(snapshot)
    third = setup.get("metadata", {}).get("version")
    named = (project.get("version"), poetry.get("version"), third)
    for value in named:
        if isinstance(value, str) and _PLAIN.fullmatch(value.strip()):
            return value.strip()
    return next(_assigned(name, snapshot), "")


def _assigned(name: str, snapshot: Snapshot) -> Iterator[str]:
    package = re.sub(r"[-.]+", "_", name)
    spellings = dict.fromkeys((package, package.lower()))
    for folder in (f"{prefix}{each}" for each in spellings for prefix in ("src/", "", "lib/")):
        for path in (f"{folder}/{file}" for file in _VERSION_FILES):
            found = _ASSIGNED.search(snapshot.text(path)) if path in snapshot.files else None
            if found:
                yield found[1]


def _entry_points(snapshot: Snapshot) -> Mapping[str, Mapping[str, str]]:
    """Read groups by name from pyproject.toml (PEP 621 and poetry), else from setup.cfg."""
    project = _table(_pyproject(snapshot), "project")
    poetry = _table(_table(_pyproject(snapshot), "tool"), "poetry")
    groups = {
        "console_scripts": {**_table(poetry, "scripts"), **_table(project, "scripts")},
        "gui_scripts": _table(project, "gui-scripts"),
        **_table(poetry, "plugins"),
        **_table(project, "entry-points"),
    }
    found = {group: _texts(entries) for group, entries in groups.items()}
    if any(found.values()):
        return found
    setup = _setup(snapshot).get("options.entry_points", {})
    return {group: dict(_lines(text)) for group, text in setup.items()}


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator:
            yield name.strip(), value.strip()


def _rendered(groups: Mapping[str, Mapping[str, str]]) -> str:
    parts = []
    for group, entries in sorted(groups.items()):
        lines = [f"{name} = {value}" for name, value in sorted(entries.items())]
        if lines and "\n" not in "".join((group, *lines)):
            parts.append("\n".join((f"[{group}]", *lines, "")))
    return "\n".join(parts)


def _pyproject(snapshot: Snapshot) -> Mapping[str, Any]:
    if "pyproject.toml" not in snapshot.files:
        return {}
    try:
        return tomllib.loads(snapshot.text("pyproject.toml"))
    except tomllib.TOMLDecodeError:
        return {}


def _setup(snapshot: Snapshot) -> Mapping[str, Mapping[str, str]]:
    if "setup.cfg" not in snapshot.files:
        return {}
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(snapshot.text("setup.cfg"))
    except configparser.Error:
        return {}
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _texts(value: object) -> Mapping[str, str]:
    """Keep the entries of a foreign table that are text."""
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if isinstance(text, str)}
