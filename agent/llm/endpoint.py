"""`Endpoint`: where requests go, with which key, and why."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent.errors import ConfigurationError

# Paths of single calls, which users paste along with the base URL.
_SERVED_PATHS = (
    "/chat/completions",
    "/completions",
    "/messages",
    "/embeddings",
    "/models",
    "/api/inference",
    "/api/embedding",
    "/agents/inference",
    "/agents/embedding",
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model on one server. `base_url` has no slash at the end; `why` says what chose it.

    `kind` is a name of `PROTOCOLS`. `model` is "" when the server is asked for one. A refusal tells
    to change the named settings.
    """

    base_url: str
    api_key: SecretStr | None
    model: str
    kind: str
    why: str
    key_setting: str = "PATCHSHOT_API_KEY"
    url_setting: str = "PATCHSHOT_BASE_URL"
    model_setting: str = "PATCHSHOT_MODEL"
    run_id: str = ""
    embedding_base_url: str | None = None


def normalise_base_url(value: str, setting: str) -> str:
    """`value` without blanks, a slash at the end, or the path of one call (`/chat/completions`).

    Raises ConfigurationError, which names `setting`.
    """
    url = value.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        _ = parts.port  # checked only when read
    except ValueError as error:
        raise ConfigurationError(f"{setting} is not a URL ({error}): correct it") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        hint = f"http://{url}" if url and "://" not in url else "https://host/v1"
        raise ConfigurationError(
            f"{setting} is not an http(s) URL ({without_credentials(url)!r}): write it in full, "
            f"for example {without_credentials(hint)}"
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(
            f"{setting} has a query or fragment, which calls would lose: remove what follows "
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        )
    for call in _SERVED_PATHS:
        if parts.path.endswith(call):  # of the path alone: a host may be called "embeddings"
            return url.removesuffix(call).rstrip("/")
    return url


def without_credentials(url: str) -> str:
    """`url` with `user:password@` removed, fit to print."""
    scheme, separator, rest = url.rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def host_of(endpoint: Endpoint) -> str:
    """`https://host:port` of the endpoint, the name that messages use."""
    scheme, _, rest = without_credentials(endpoint.base_url).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs lead to one server: scheme, host and port are the same."""
    a, b = urlsplit(one), urlsplit(other)
    return (a.scheme, a.hostname, a.port) == (b.scheme, b.hostname, b.port)


def clean_key(key: SecretStr | None, setting: str) -> SecretStr | None:
    """The key without blanks around it; None when empty. Raises ConfigurationError."""
    value = key.get_secret_value().strip() if key else ""
    if not value:
        return None
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigurationError(
            f"{setting} has characters that no HTTP header can carry: copy the key again"
        )
    return SecretStr(value)
