"""Which of the declared packages a bundle needs, and how they are asked for."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path

from agent.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DISTRIBUTION = "patchshot"


def declared(root: Path) -> Mapping[str, str]:
    """Import name -> requirement, of every package that is declared without an extra, if installed.

    Declared in the checkout at `root`, else in the metadata of the installation. Raises
    ConfigurationError where there is neither.
    """
    wanted = {_plain(line): line for line in _lines(root)}
    return {
        name: wanted[distribution]
        for name, distributions in sorted(metadata.packages_distributions().items())
        for distribution in map(_plain, distributions)
        if distribution in wanted
    }


def _lines(root: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
        return list(project["dependencies"])
    try:
        given = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        raise ConfigurationError(
            "the declared packages are not known: install Patchshot (pip install -e .) first"
        ) from None
    return [line for line in given if "extra ==" not in line]


def needed(root: Path, foreign: Collection[str]) -> tuple[tuple[str, str, str], ...]:
    """(import name, package, requirement) of what is declared, and among `foreign`; in order."""
    known = declared(root)
    return tuple((name, _plain(line), line) for name, line in known.items() if name in foreign)


def _plain(requirement: str) -> str:
    """The distribution's name, normalised (PEP 503)."""
    match = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""
