"""Parses store URLs and removes passwords from them for messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agent.errors import ConfigurationError

IN_MEMORY = ":memory:"
"""The name of a database without a file, in SQLite and Qdrant."""

_PASSWORD = re.compile(r"(?<=//)([^/@:]*):.*@")  # an unquoted password may contain an @
_BARE_PASSWORD = re.compile(r"^([^/@:]*):(?!//).*@")  # `user:SECRET@host`, without a scheme
_PARAMETER = re.compile(r"(?i)\b((?:ssl)?password|api[_-]?key|token)=([^&\s]*)")
# characters at which a driver may split an unquoted password
_BETWEEN_PARTS = re.compile("[@/:?#&]")
_SHORTEST_PART = 3  # minimum length of a removed part: shorter ones occur in many words


def scheme_of(url: str) -> str:
    """Return the part before the colon, in lower case."""
    return url.partition(":")[0].lower()


def path_of(url: str) -> Path:
    """Return the path of `scheme:///absolute` or `scheme://relative`.

    Raises ConfigurationError for a URL without a path, or with more than one.
    """
    parts = urlsplit(url)
    path = re.sub("^//+", "/", unquote(parts.netloc + parts.path))
    if not path or parts.query or parts.fragment:
        example = f"{scheme_of(url)}:///{'FILE' if scheme_of(url) == 'sqlite' else 'DIR'}"
        raise ConfigurationError(
            f"store {shown_url(url)}: name a path after the scheme, as {example}"
        )
    return Path(path).expanduser()


def check_address(url: str) -> None:
    """Raise ConfigurationError if the host or the port cannot be parsed."""
    if urlsplit(url).netloc == IN_MEMORY:
        return
    try:
        _ = urlsplit(url).port
    except ValueError:  # the original message would contain the address
        raise ConfigurationError(
            f"store {shown_url(url)}: the host or the port is not valid; write a / @ : of the"
            " password as %2F %40 %3A"
        ) from None


def is_new(path: Path) -> bool:
    """Whether a store at `path` would be created: the path does not exist, and its folder can be
    created.
    """
    if path.exists():
        return False
    return next(parent for parent in path.absolute().parents if parent.exists()).is_dir()


def shown_url(url: str) -> str:
    """Return the URL for messages, in one line and without a password."""
    shown = without_password(url)
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def without_password(url: str) -> str:
    """Return the URL without passwords and keys."""
    return _PARAMETER.sub(r"\1=...", _BARE_PASSWORD.sub(r"\1@", _PASSWORD.sub(r"\1@", url)))


def without_password_of(url: str, text: str) -> str:
    """Return a driver's message without the URL's password or parts of it."""
    found = {part for whole in _passwords(url) for part in (whole, *_BETWEEN_PARTS.split(whole))}
    for part in sorted(found, key=lambda part: (-len(part), part)):
        if len(part) >= _SHORTEST_PART:
            text = text.replace(part, "...")
    return text


def _passwords(url: str) -> Iterator[str]:
    """Yield the passwords, both as written and decoded."""
    for pattern in (_PASSWORD, _BARE_PASSWORD):
        if found := pattern.search(url):
            written = found[0][len(found[1]) + 1 : -1]
            yield from (written, unquote(written))
    for parameter in _PARAMETER.finditer(url):
        yield from (parameter[2], unquote(parameter[2]))
