"""What the process is given from outside: variables, secrets, and the user's folders."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.errors import ConfigurationError
from agent.shared.files import parse_toml

FILE_NAME = "patchshot.toml"


# Kind of folder -> its variable and its default, as in the XDG base directory specification.
_FOLDERS = {
    "config": ("XDG_CONFIG_HOME", ".config"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "data": ("XDG_DATA_HOME", ".local/share"),
    "state": ("XDG_STATE_HOME", ".local/state"),
}


def user_folder(kind: str) -> Path:
    """The user's folder of this program: `kind` is "config", "cache", "data" or "state"."""
    variable, default = _FOLDERS[kind]
    given = Path(os.environ.get(variable, ""))
    home = os.path.expanduser("~")  # noqa: PTH111  (no error for a user without a home)
    folder = given if given.is_absolute() else Path(home, default)
    return folder / "patchshot"


def user_file() -> Path:
    """The user's own configuration file, whether or not it exists."""
    return user_folder("config") / FILE_NAME


def state_folder() -> Path:
    """The user's folder of what was done."""
    return user_folder("state")


def data_folder() -> Path:
    """The user's folder of what cost money: intents by a model, remembered patches."""
    return user_folder("data")


def environment(names: tuple[str, ...]) -> Mapping[str, str]:
    """The variables of other tools (OPENAI_API_KEY, ...) that are set and not empty."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


# Variables that hold keys, ours and anybody's: a log may quote what a server echoes.
_SECRET_NAME = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)
_ADDRESS_NAME = re.compile(r"^((https?|all)_proxy|patchshot_store)$", re.IGNORECASE)
_KEYS = ("api_key", "embed_api_key")
_PASSWORD = re.compile(r"^[^/]*//[^/@:]*:([^/@]+)@")


def secret_values() -> frozenset[str]:
    """All keys and passwords that this process was given, for masking; never raises."""
    values = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    values |= {
        found.group(1)
        for name, value in os.environ.items()
        if _ADDRESS_NAME.search(name) and (found := _PASSWORD.search(value))
    }
    with contextlib.suppress(ConfigurationError, OSError):
        own = read_user_file()
        values |= {str(own.get(name, "")) for name in _KEYS}
    return frozenset(value.strip() for value in values if value.strip() and not _is_file(value))


def _is_file(value: str) -> bool:
    """Whether a variable names a key file: masking its path would mask every path beside it."""
    try:
        return value.startswith(("/", "~")) and Path(value).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def read_user_file() -> Mapping[str, Any]:
    """The content of `user_file`, empty if there is none. Raises ConfigurationError."""
    path = user_file()
    try:
        return parse_toml(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except ValueError as error:
        raise ConfigurationError(f"{path}: not valid TOML ({error})") from None
