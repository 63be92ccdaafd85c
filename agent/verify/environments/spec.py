"""The file that says in which environment each project's tests run.

Its fields are described in docs/reference/environments-file.md.

`[default]` holds for every project, `[projects."owner/name"]` for one, an entry of its `ranges` for
a span of its versions. Of each field, the most specific value counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from agent.errors import ConfigurationError
from agent.shared.files import parse_toml

NO_INDEX = "none"
"""As `index`: packages come from `find_links` alone, without the network."""


def _inside(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or "\0" in path or ".." in parts or not path:
        raise ValueError("give a path inside the repository, relative to its root")
    return "/".join(part for part in parts if part not in ("", ".")) or "."


def _requirement(text: str) -> str:
    """Check that pip does not read this as an option; pip itself checks the rest."""
    text = text.strip()
    if not text or text.startswith("-") or "\n" in text:
        raise ValueError("give a requirement such as 'pytest==8.3.5', not an option of pip")
    return text


def _metadata(value: object) -> object:
    return {True: _OWN_NAME, False: ""}[value] if isinstance(value, bool) else value


_OWN_NAME = "/"  # no name of a distribution
_Inside = Annotated[str, AfterValidator(_inside)]
_Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Version = Annotated[str, Field(pattern=r"^\D*\d")]


class Environment(BaseModel):
    """The environment of one instance. A table of the file gives some of the fields.

    `python` is a version, a name on PATH or an absolute path; "" for the one that runs us.
    `metadata` is the name of the distribution whose metadata is written into the tree, "" for none.
    `index` is an address, "none", or "" for pip's own. `find_links` are absolute paths or
    addresses.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    python: str = ""
    packages: tuple[Annotated[str, AfterValidator(_requirement)], ...] = ()
    test: str = ""
    env: dict[_Variable, str] = {}
    paths: tuple[_Inside, ...] = ()
    files: dict[_Inside, str] = {}
    metadata: Annotated[str, BeforeValidator(_metadata)] = ""
    version: str = ""
    index: str = ""
    find_links: tuple[str, ...] = ()
    sdist: bool = False


class _Range(Environment):
    """Fields for a span of versions: `since` is included, `until` is not."""

    since: _Version | None = None
    until: _Version | None = None

    def applies(self, version: str) -> bool:
        """Whether a version ("" when unknown) is in the span."""
        release = _release(version)
        return (bool(version) or not (self.since or self.until)) and (
            (self.since is None or release >= _release(self.since))
            and (self.until is None or release < _release(self.until))
        )


class _Project(Environment):
    ranges: tuple[_Range, ...] = ()


class _File(BaseModel, frozen=True, extra="forbid"):
    default: Environment = Environment()
    projects: dict[Annotated[str, Field(pattern=r"^[^/\s]+/[^/\s]+$")], _Project] = {}


class EnvironmentSpec:
    """A spec file. `environment` returns what it says about a project at a commit."""

    def __init__(self, data: Mapping[str, Any], folder: Path) -> None:
        """Relative `find_links` start at `folder`. Raises ValidationError."""
        self._file = _File.model_validate(data)
        self._folder = folder
        self._projects = {name.lower(): each for name, each in self._file.projects.items()}

    def project_of(self, repository: Path) -> str:
        """Find the project that a folder is named after; "" for none or several.

        The folder is `owner__name`, `owner+name`, `owner/name` or a name that only one project has.
        """
        path = repository.absolute()
        name = path.name.removesuffix(".git")
        nested = f"{path.parent.name}/{name}"
        for project in (name.replace("__", "/", 1), name.replace("+", "/", 1), nested):
            if project.lower() in self._projects:
                return project
        matches = [p for p in self._file.projects if p.partition("/")[2].lower() == name.lower()]
        return matches[0] if len(matches) == 1 else ""

    def environment(self, project: str, version: str = "") -> Environment:
        """Return what the file says about a project at a version."""
        table = self._projects.get(project.lower())
        layers: list[Environment] = [self._file.default]
        if table is not None:
            layers += [table, *[r for r in table.ranges if r.applies(version)][:1]]
        given: dict[str, Any] = {}
        for layer in layers:
            given |= layer.model_dump(
                include=layer.model_fields_set & set(Environment.model_fields)
            )
        if given.get("metadata") == _OWN_NAME:
            given["metadata"] = project.partition("/")[2]
        given["find_links"] = tuple(map(self._link, given.get("find_links", ())))
        return Environment(**given)

    def _link(self, link: str) -> str:
        return link if "://" in link else str((self._folder / link).absolute())


def read_spec(path: Path) -> EnvironmentSpec:
    """Read a spec file. Raises ConfigurationError, which names the field."""
    try:
        return EnvironmentSpec(parse_toml(path.read_bytes()), path.absolute().parent)
    except OSError as error:
        raise ConfigurationError(f"--environments {path}: {error.strerror or error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"] if part != "[key]")
        what = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(
            f"--environments {path}: {place}: {what} (docs/reference/environments-file.md)"
        ) from None
    except ValueError as error:
        raise ConfigurationError(f"--environments {path}: not valid TOML ({error})") from None


def _release(version: str) -> tuple[int, ...]:
    """Parse `v2.10rc1` as (2, 10), to order releases; ignores suffixes and trailing zeros."""
    release = re.match(r"\D*(\d+(?:\.\d+)*)", version)
    numbers = [int(part) for part in release[1].split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
