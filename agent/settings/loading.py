"""Merge flags, the environment and files into one `Settings`, with the origin of each value."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from agent.errors import ConfigurationError
from agent.settings.fields import AUTO_CONTEXT, TEAM, Settings, Tightens, option_of
from agent.settings.sources import FILE_NAME, read_user_file, state_folder, user_file
from agent.shared.files import make_private_folder, parse_toml, read_small_file

# Variables with our prefix that are no settings.
_OTHER_VARIABLES = (
    "PATCHSHOT_DEBUG", "PATCHSHOT_MINER_", "PATCHSHOT_REPO", "PATCHSHOT_REQUIRE_",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings of one command, where each value came from, and what was ignored."""

    settings: Settings
    origins: Mapping[str, str]
    notes: tuple[str, ...]


def load(
    flags: Mapping[str, Any],
    *,
    repository: Path | None = None,
    note: Callable[[str], None] | None = None,
) -> Settings:
    """Merge flags (None: not given), the environment and files; `note` receives each note.

    Raises ConfigurationError that names the setting and where its value came from.
    """
    loaded = load_with_origins(flags, repository=repository)
    for line in loaded.notes if note else ():
        note(line)  # type: ignore[misc]
    return loaded.settings


def load_with_origins(flags: Mapping[str, Any], *, repository: Path | None = None) -> Loaded:
    """As `load`, with the origin of each value. Raises ConfigurationError."""
    given = {name: value for name, value in flags.items() if value is not None}
    _, strange = _known(given, "settings")
    if strange:  # from a program: the command line has no other options
        raise ConfigurationError(strange[0])
    own, unknown = _known(read_user_file(), str(user_file()))
    notes = [*unknown, *_unknown_variables()]
    variables = {
        name: os.environ[_variable(name)]
        for name in Settings.model_fields
        if os.environ.get(_variable(name))
    }
    own = {name: value for name, value in own.items() if name not in variables}
    values = {**own, **variables, **given}
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise ConfigurationError(_explain(error, given, own, str(user_file()))) from None
    origins = dict.fromkeys(Settings.model_fields, "default")
    origins |= dict.fromkeys(own, str(user_file()))
    origins |= {name: _variable(name) for name in variables}
    origins |= {name: _flag(name) for name in given}
    if repository is None:
        return Loaded(settings, origins, tuple(notes))
    place, theirs = _repository_file(repository)
    team, untrusted = _of_team(settings, theirs, place, work_tree_of(repository))
    limits = {name: value for name, value in theirs.items() if name not in TEAM}
    tighter, ignored = _tightened(settings, limits, place, given)
    tighter = {**tighter, **{name: value for name, value in team.items() if name not in values}}
    ignored = (*ignored, *untrusted)
    try:
        settings = Settings(**{**values, **tighter})
    except ValidationError as error:
        raise ConfigurationError(_explain(error, {}, tighter, place)) from None
    return Loaded(settings, origins | dict.fromkeys(tighter, place), (*notes, *ignored))


def _repository_file(repository: Path) -> tuple[str, Mapping[str, Any]]:
    root = work_tree_of(repository)
    if (data := read_small_file(root / FILE_NAME)) is not None:
        return f"{FILE_NAME} of the repository", _parsed(data, FILE_NAME)
    place = "pyproject.toml of the repository"
    data = read_small_file(root / "pyproject.toml")
    try:
        tool = _parsed(data or b"", "pyproject.toml").get("tool", {})
    except ConfigurationError:
        return place, {}  # a broken pyproject.toml is not a mistake in our configuration
    section = tool.get("patchshot", {}) if isinstance(tool, dict) else {}
    return place, section if isinstance(section, dict) else {}


def work_tree_of(folder: Path) -> Path:
    """The work tree that `folder` is in, or `folder` itself; no git is run."""
    folder = folder.resolve()
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


def team_settings(repository: Path) -> Mapping[str, Any]:
    """Return what the repository's own file sets of TEAM. Raises ConfigurationError."""
    _, theirs = _repository_file(repository)
    return {name: theirs[name] for name in TEAM if name in theirs}


def consents_file() -> Path:
    """The file that holds a hash for each consent: of the work tree and of what it sets."""
    return state_folder() / "trusted"


def trust(repository: Path) -> None:
    """Keep the consent to what this work tree sets now. Raises ConfigurationError, OSError."""
    path = consents_file()
    make_private_folder(path.parent)
    with path.open("a", encoding="ascii") as file:
        file.write(f"{_consent(work_tree_of(repository), team_settings(repository))}\n")


def _consent(root: Path, team: Mapping[str, Any]) -> str:
    text = json.dumps([str(root), dict(team)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _of_team(
    settings: Settings, theirs: Mapping[str, Any], place: str, root: Path
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the settings of a team that count, and why the others do not."""
    team = {name: theirs[name] for name in TEAM if name in theirs}
    if not team:
        return {}, ()
    names = ", ".join(team)
    if settings.unsafe_no_sandbox:
        return {}, (f"{place}: {names} ignored: they may run in a sandbox only",)
    python = team.get("python")
    if python is not None and not _is_inside(python):  # another would be started outside
        return {}, (f"{place}: {names} ignored: python has to be a path inside the repository",)
    consents = read_small_file(consents_file()) or b""
    # Without a person who has read the commands, none of them gets the network.
    unread = settings.trust_repository and not settings.setup_network
    if not unread and _consent(root, team).encode() not in consents.split():
        return {}, (f"{place}: {names} ignored until you agree with `agent trust`",)
    return {**team, **({"python": root / python} if python is not None else {})}, ()


def _is_inside(path: object) -> bool:
    parts = PurePosixPath(path) if isinstance(path, str) else PurePosixPath("/")
    return not parts.is_absolute() and ".." not in parts.parts


def _parsed(data: bytes, name: str) -> Mapping[str, Any]:
    try:
        return parse_toml(data)
    except ValueError as error:
        raise ConfigurationError(f"{name} of the repository: not valid TOML ({error})") from None


def _tightened(
    settings: Settings, theirs: Mapping[str, Any], place: str, flags: Mapping[str, Any]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    known, notes = _known(theirs, place)
    counts: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in known.items():
        tightens = option_of(name).tightens
        current = getattr(settings, name)
        if tightens is not None and _is_tighter(tightens, value, current):
            if name not in flags:
                counts[name] = value
        elif value != current:
            ignored.append(
                f"{place}: {name} is ignored: a repository may only tighten limits; set it in "
                f"{user_file()} or as {_variable(name)}"
            )
    return counts, (*notes, *ignored)


def _is_tighter(tightens: Tightens, value: Any, current: Any) -> bool:
    """Whether `value` is tighter than `current`; a value of a wrong type is left to validation."""
    if tightens == "off":
        return value is not True
    if tightens == "refuse":
        return bool(value == "refuse")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if current == "auto":  # it may choose the least budget, so only that is surely no looser
        current = AUTO_CONTEXT[0] + 1
    return current is None or not number or value < current


def _known(values: Mapping[str, Any], place: str) -> tuple[dict[str, Any], list[str]]:
    known = {name: value for name, value in values.items() if name in Settings.model_fields}
    unknown = [name for name in values if name not in known]
    return known, [f"{place}: {name} is no setting{_nearest(name)}" for name in unknown]


def _unknown_variables() -> list[str]:
    known = {_variable(name) for name in Settings.model_fields}
    return [
        f"{name} is no setting{_nearest(name.removeprefix('PATCHSHOT_').lower(), _variable)}"
        for name in sorted(os.environ)
        if name.startswith("PATCHSHOT_")
        and name not in known
        and not name.startswith(_OTHER_VARIABLES)
    ]


def _nearest(name: str, written: Callable[[str], str] = str) -> str:
    close = difflib.get_close_matches(name.lower(), list(Settings.model_fields), n=1)
    return f"; did you mean {written(close[0])}?" if close else ""


def _variable(name: str) -> str:
    return f"PATCHSHOT_{name.upper()}"


def _flag(name: str) -> str:
    option = option_of(name)
    if option.commands == "none":
        return _variable(name)
    return option.flags[0].partition("/")[0] if option.flags else f"--{name.replace('_', '-')}"


def _explain(
    error: ValidationError, flags: Mapping[str, Any], values: Mapping[str, Any], place: str
) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    if name in flags:
        given = _flag(name)
    elif name in values:
        given = f"{name} in {place}"
    else:
        given = _variable(name)
    return f"{given}: {first['msg'].lower().removeprefix('value error, ')}"
