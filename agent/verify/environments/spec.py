"""The file that says in which environment each project's tests run.

Its fields are described in docs/reference/environments-file.md.

`[default]` holds for every project, `[projects."owner/name"]` for one, an entry of its `ranges` for
a span of its versions or commits. Of each field, the most specific value counts.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from agent.errors import ConfigurationError

NO_INDEX = "none"
"""As `index`: packages come from `find_links` alone, without the network."""

# https://packaging.python.org/en/latest/specifications/dependency-specifiers/ in outline: markers
# and the form of versions are left to pip.
_CLAUSE = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[\w.*+!-]+"
_CLAUSES = rf"{_CLAUSE}(?:\s*,\s*{_CLAUSE})*\s*,?"
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?\s*(?:\[[\w\s,.-]*\])?\s*"
    rf"(?:@\s*\S.*|(?:\(\s*{_CLAUSES}\s*\)|{_CLAUSES})?\s*(?:;.+)?)",
    re.ASCII,
)
_PLACE = re.compile(r"(?:[a-z+]+:/)?/\S")

# What each field takes.
_EXPECTED = {
    "default": "a table [default]",
    "projects": 'a table [projects."owner/name"]',
    "ranges": 'tables [[projects."owner/name".ranges]]',
    "python": 'a text such as "3.11"',
    "packages": 'a list of requirements such as ["pytest==8.3.5"]',
    "test": 'a command such as "python -m pytest"',
    "env": 'a table of variables and texts such as { CI = "1" }',
    "paths": 'a list of folders such as ["src"]',
    "files": 'a table of paths and texts such as { "src/a.py" = "" }',
    "metadata": "true, false or the name of a distribution",
    "version": 'a version as a text such as "1.4"',
    "index": 'an address or "none"',
    "find_links": "a list of folders or addresses",
    "sdist": "true or false",
    "since": 'a version as a text such as "8.0"',
    "until": 'a version as a text such as "8.0"',
    "since_commit": "a commit as 7 to 40 hex digits in lower case",
    "until_commit": "a commit as 7 to 40 hex digits in lower case",
}

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _inside(path: str) -> str:
    """Check a folder or file of the tree."""
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or "\0" in path or ".." in parts or not path:
        raise ValueError("give a path inside the repository, relative to its root")
    return "/".join(part for part in parts if part not in ("", ".")) or "."


def _requirement(text: str) -> str:
    """Check that pip would install this, and not read it as an option."""
    if not text.strip() or text.strip().startswith("-") or "\n" in text:
        raise ValueError("give a requirement such as 'pytest==8.3.5', not an option of pip")
    if not (_REQUIREMENT.fullmatch(text.strip()) or _PLACE.match(text.strip())):
        raise ValueError(f"{text!r} is no requirement; give one such as 'pytest==8.3.5'")
    return text.strip()


def _bound(text: str) -> str:
    """Check that another version can be before or after this one."""
    if not re.match(r"\D*\d", text):
        raise ValueError(f"{text!r} is no version; give one such as '8.0'")
    return text


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("not the name of an environment variable")
    return name


_Inside = Annotated[str, AfterValidator(_inside)]


class _Fields(BaseModel):
    """The fields of a table; None where the table does not give one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    python: Annotated[str, Field(min_length=1)] | None = None
    packages: tuple[Annotated[str, AfterValidator(_requirement)], ...] | None = None
    test: Annotated[str, Field(min_length=1)] | None = None
    env: dict[Annotated[str, AfterValidator(_variable)], str] | None = None
    paths: tuple[_Inside, ...] | None = None
    files: dict[_Inside, str] | None = None
    metadata: bool | str | None = None
    version: str | None = None
    index: Annotated[str, Field(min_length=1)] | None = None
    find_links: tuple[str, ...] | None = None
    sdist: bool | None = None


class _Range(_Fields):
    """Fields for a span: `since` is included, `until` is not. All given bounds must hold."""

    since: Annotated[str, AfterValidator(_bound)] | None = None
    until: Annotated[str, AfterValidator(_bound)] | None = None
    since_commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")] | None = None
    until_commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")] | None = None

    @model_validator(mode="after")
    def _holds_something(self) -> _Range:
        if self.since and self.until and _release(self.since) >= _release(self.until):
            raise ValueError(f"since {self.since} is not before until {self.until}: nothing fits")
        return self


class _Project(_Fields):
    ranges: tuple[_Range, ...] = ()


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    default: _Fields = _Fields()
    projects: dict[Annotated[str, Field(pattern=r"^[^/\s]+/[^/\s]+$")], _Project] = {}


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one instance.

    `python` is a version, a name on PATH or an absolute path; "" for the one that runs us.
    `metadata` is the name of the distribution whose metadata is written into the tree, "" for none.
    `index` is an address, "none", or "" for pip's own. `find_links` are absolute paths or
    addresses.
    """

    python: str = ""
    packages: tuple[str, ...] = ()
    test: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    metadata: str = ""
    version: str = ""
    index: str = ""
    find_links: tuple[str, ...] = ()
    sdist: bool = False


class EnvironmentSpec:
    """A spec file. `environment` returns what it says about a project at a commit."""

    def __init__(self, data: Mapping[str, Any], folder: Path) -> None:
        """Relative `find_links` start at `folder`. Raises ValidationError."""
        self._file = _File.model_validate(data)
        self._folder = folder
        self._projects = {name.lower(): each for name, each in self._file.projects.items()}

    def names(self, project: str) -> bool:
        """Whether the file has a table for the project."""
        return project.lower() in self._projects

    def find_by_name(self, name: str) -> str:
        """Find the only project with this name after the slash; "" for none or several."""
        found = [p for p in self._file.projects if p.partition("/")[2].lower() == name.lower()]
        return found[0] if len(found) == 1 else ""

    def environment(
        self, project: str, version: str = "", *, holds: Callable[[str], bool] | None = None
    ) -> Environment:
        """Return what the file says about `project` at `version` ("" when unknown).

        `holds` says whether the history of the instance's commit contains a commit. Without it, no
        range by commits applies.
        """
        found = self._projects.get(project.lower())
        layers: list[_Fields] = [self._file.default]
        if found is not None:
            layers.append(found)
            layers += [r for r in found.ranges if _applies(r, version, holds)][:1]
        given = {
            name: value
            for layer in layers
            for name, value in layer.model_dump(include=set(_Fields.model_fields)).items()
            if value is not None
        }
        metadata = given.pop("metadata", False)
        name = project.partition("/")[2] if metadata is True else metadata or ""
        links = tuple(self._link(link) for link in given.pop("find_links", ()))
        return Environment(**given, metadata=name, find_links=links)

    def _link(self, link: str) -> str:
        return link if "://" in link else str((self._folder / link).absolute())


def read_spec(path: Path) -> EnvironmentSpec:
    """Read a spec file. Raises ConfigurationError, which names the field."""
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"--environments {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--environments {path}: not valid TOML ({error})") from None
    try:
        return EnvironmentSpec(data, path.absolute().parent)
    except ValidationError as error:
        raise ConfigurationError(f"--environments {path}: {_describe_error(error)}") from None


def _describe_error(error: ValidationError) -> str:
    """Describe the first mistake: table, field, and what is expected there."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "extra_forbidden":
        *table, field = first["loc"]
        known = _known_fields(table)
        hint = f"{suggest_name(str(field), known)} (known: {', '.join(known)})"
        return f"{_format_location(first['loc'])}no such field{hint}"
    place, what = describe_mistake(error, _EXPECTED)
    if first["type"] == "string_pattern_mismatch" and "[key]" in first["loc"]:
        return f'[projects.{first["loc"][1]}]: a project is named as "owner/name", in quotes'
    return f"{_format_location(place)}{what}"


def _format_location(place: Sequence[str | int]) -> str:
    """Format a location, such as `[projects."a/b"] ranges, entry 1, since: `."""
    parts = [f"entry {part + 1}" if isinstance(part, int) else part for part in place]
    table = ""
    if len(parts) > 1 and parts[0] == "projects":
        table, parts = f'[projects."{parts[1]}"]', parts[2:]
    elif len(parts) > 1:
        table, parts = f"[{parts[0]}]", parts[1:]
    words = " ".join(filter(None, (table, ", ".join(parts))))
    return f"{words}: " if words else ""


def _known_fields(table: Sequence[str | int]) -> list[str]:
    """Return the fields of a table."""
    if not table:
        return list(_File.model_fields)
    if table[0] == "default":
        return list(_Fields.model_fields)
    return list((_Range if "ranges" in table[2:] else _Project).model_fields)


def _applies(span: _Range, version: str, holds: Callable[[str], bool] | None) -> bool:
    if (span.since or span.until) and not version:
        return False
    if (span.since_commit or span.until_commit) and holds is None:
        return False
    return (
        (span.since is None or _release(version) >= _release(span.since))
        and (span.until is None or _release(version) < _release(span.until))
        and (span.since_commit is None or (holds is not None and holds(span.since_commit)))
        and (span.until_commit is None or (holds is not None and not holds(span.until_commit)))
    )


def _release(version: str) -> tuple[int, ...]:
    """Parse `v2.10rc1` as (2, 10), to order releases; ignores suffixes and trailing zeros."""
    release = re.match(r"\D*(\d+(?:\.\d+)*)", version)
    numbers = [int(part) for part in release[1].split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def describe_mistake(
    error: ValidationError, expected: Mapping[str, str], known: Collection[str] = ()
) -> tuple[tuple[str | int, ...], str]:
    """Describe the first mistake in a foreign file: its location, and what is wrong there.

    The location has no parts that only pydantic knows. `expected` says what each field takes ("a
    text"). `known` are fields that the writer gave or could have given, for a suggestion.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    place = first["loc"]
    named = [part for part in place if part in expected]
    field = str(named[-1]) if named else str(place[-1]) if place else ""
    while place and place[-1] != field and isinstance(place[-1], str) and named:
        place = place[:-1]  # "[key]", or the member of a union
    if first["type"] == "missing":
        return place, f"is missing ({expected.get(field, 'it is needed')})" + suggest_name(
            field, known
        )
    if first["type"] == "value_error":
        return place, str(first.get("ctx", {}).get("error", first["msg"]))
    wanted = expected.get(field)
    return place, f"{wanted} is needed" if wanted else first["msg"]


def suggest_name(name: str, known: Collection[str]) -> str:
    """Suggest a known name for a mistyped one, "" for none."""
    found = get_close_matches(name, sorted(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""
