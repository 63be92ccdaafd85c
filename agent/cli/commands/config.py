"""`agent config`: print every setting with its value and origin, or write a configuration file."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import SecretStr

from agent.cli.commands.common import guarded, print_value, write_stdout
from agent.cli.options import command as declare
from agent.cli.options import json_option
from agent.errors import ConfigurationError
from agent.settings import Loaded, Settings, load_with_origins, option_of, user_file
from agent.shared.terminal import say

_HEADER = """\
# Settings of Patchshot. Remove the "# " before a line to set it. The environment (PATCHSHOT_NAME)
# and the command line win over this file. `agent config` shows what holds.
"""


def show(repo: Path | None, *, json: bool) -> int:
    """Print every setting, with keys masked. Return the exit code."""
    loaded = load_with_origins({}, repository=repo)
    for note in loaded.notes:
        say(f"note: {note}")
    rows = [_row(name, loaded) for name in Settings.model_fields]
    if json:
        print_value(rows)
        return 0
    width = max(len(row["name"]) for row in rows)
    lines = (
        f"{row['name']:<{width}}  {_in_words(row['value'])}"
        + ("" if row["origin"] == "default" else f"  ({row['origin']})")
        for row in rows
    )
    write_stdout("".join(f"{line}\n" for line in lines))
    return 0


def _row(name: str, loaded: Loaded) -> dict[str, Any]:
    return {
        "name": name,
        "value": _plain(getattr(loaded.settings, name)),
        "origin": loaded.origins[name],
        "help": Settings.model_fields[name].description,
    }


def _plain(value: Any) -> Any:
    """Convert a value to JSON without keys and passwords."""
    if isinstance(value, SecretStr):
        return "********"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):
        return re.sub(r"(//[^/@:]*:)[^/@]+@", r"\1********@", value)  # a password in a URL
    return list(value) if isinstance(value, tuple) else value


def _in_words(value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str(value)


def initialise() -> int:
    """Write a commented configuration file. Raises ConfigurationError if one exists."""
    path = user_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with path.open("x", encoding="utf-8") as file:
            path.chmod(0o600)  # the user may add a key later
            file.write(_HEADER + "".join(_commented()))
    except FileExistsError:
        raise ConfigurationError(f"{path} exists; edit it, or remove it first") from None
    say(f"wrote {path}")
    return 0


def _commented() -> Iterator[str]:
    """Yield each setting as a commented line below its help text, by panel."""
    panel = ""
    for name, field in Settings.model_fields.items():
        option = option_of(name)
        if option and option.panel != panel:
            panel = option.panel
            yield f"\n# --- {panel}\n"
        default = None if field.default_factory else _plain(field.default)
        value = '""' if default is None else json_module.dumps(default)
        yield f"\n# {field.description}\n# {name} = {value}\n"


@declare(
    "config",
    ending="""
    Example:
      agent config
      agent config --init
    """,
)
@click.option(
    "--repo",
    type=click.Path(path_type=Path),
    help="Take the limits of this repository's own file into account.",
)
@click.option("--init", is_flag=True, help="Write a commented file to the configuration folder.")
@json_option
def command(repo: Path | None, init: bool, json: bool) -> int:
    """Show every setting, its value, and where the value comes from."""
    return guarded(initialise if init else lambda: show(repo, json=json))
