"""Which server is asked: a pure choice over explicit settings and the usual environment variables.

Order, the first that applies wins: PATCHSHOT_* -> OPENROUTER_API_KEY -> OPENAI_API_KEY or
OPENAI_BASE_URL -> ANTHROPIC_API_KEY. A key is only ever sent to the host it belongs to: an explicit
base URL gets PATCHSHOT_API_KEY, or a provider's own key when the URL is that provider's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from agent.errors import ConfigurationError

# "openai" is any server that speaks the OpenAI protocol. All kinds speak it today; a transport of
# another protocol joins with a kind of its own.
EndpointKind = Literal["openrouter", "openai", "anthropic"]

# The variables that `choose_endpoint` and `choose_embedding_endpoint` look up.
ENVIRONMENT_NAMES = (
    "OPENROUTER_API_KEY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
)

_SERVED_PATHS = ("/chat/completions", "/embeddings", "/models")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What the user set explicitly (PATCHSHOT_BASE_URL, _API_KEY, _MODEL or their flags)."""

    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model on one server. `base_url` has no slash at the end; `why` says what chose it.

    `api_key` is None for a server that wants none; it prints as asterisks. `key_setting`,
    `url_setting` and `model_setting` name what the user changes when the server refuses them.
    """

    base_url: str
    api_key: SecretStr | None
    model: str
    kind: EndpointKind
    why: str
    key_setting: str = "PATCHSHOT_API_KEY"
    url_setting: str = "PATCHSHOT_BASE_URL"
    model_setting: str = "PATCHSHOT_MODEL"


@dataclass(frozen=True, slots=True)
class _Provider:
    kind: EndpointKind
    base_url: str
    key_name: str
    key_prefix: str  # how its keys begin, where a bare key must be told apart
    example: str  # a model name, for the message that asks for one

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""


# Base URLs: the providers' API references; api.anthropic.com/v1 is its OpenAI-compatible endpoint.
_OPENROUTER = _Provider(
    "openrouter",
    "https://openrouter.ai/api/v1",
    "OPENROUTER_API_KEY",
    "sk-or-",
    "anthropic/claude-sonnet-5.5",
)
_ANTHROPIC = _Provider(
    "anthropic",
    "https://api.anthropic.com/v1",
    "ANTHROPIC_API_KEY",
    "sk-ant-",
    "claude-sonnet-5-5",
)
_OPENAI = _Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "", "gpt-5.4")
_BY_KEY_PREFIX = (_OPENROUTER, _ANTHROPIC, _OPENAI)  # the empty prefix comes last


@dataclass(frozen=True, slots=True)
class _Choice:
    """A server and a key, before the model is known."""

    provider: _Provider
    base_url: str
    key: SecretStr | None
    key_setting: str
    url_setting: str
    why: str


def choose_endpoint(settings: ProviderSettings, environment: Mapping[str, str]) -> Endpoint:
    """Choose the chat server.

    `environment` holds the variables of ENVIRONMENT_NAMES that are set; blank ones count as unset.
    Raises ConfigurationError, naming the variables to set, when no server or no model is chosen or
    a value is malformed.
    """
    choice = _explicit(settings, environment) or _ambient(environment)
    if choice is None:
        raise ConfigurationError(
            "no model server is configured: set PATCHSHOT_BASE_URL and PATCHSHOT_MODEL (and "
            "PATCHSHOT_API_KEY if it wants a key), or one of OPENROUTER_API_KEY, OPENAI_API_KEY, "
            "ANTHROPIC_API_KEY together with PATCHSHOT_MODEL"
        )
    model = (settings.model or "").strip()
    if not model:
        raise ConfigurationError(
            f"no model is chosen for {choice.base_url} ({choice.why}): set PATCHSHOT_MODEL, for "
            f"example {choice.provider.example}"
        )
    return Endpoint(
        choice.base_url,
        choice.key,
        model,
        choice.provider.kind,
        choice.why,
        choice.key_setting,
        choice.url_setting,
    )


def choose_embedding_endpoint(
    settings: ProviderSettings, environment: Mapping[str, str], chat: Endpoint | None = None
) -> Endpoint | None:
    """Choose the embedding server from PATCHSHOT_EMBED_*; None when no embedding model is set.

    Without a base URL of its own it is the chat server (with the chat server's key), or else the
    server that the environment names. Raises ConfigurationError like `choose_endpoint`, and when
    there is an embedding server without a model.
    """
    model = (settings.model or "").strip()
    if not model:
        if settings.base_url and settings.base_url.strip():
            raise ConfigurationError(
                "PATCHSHOT_EMBED_BASE_URL is set without a model: set PATCHSHOT_EMBED_MODEL too"
            )
        return None
    own_key = _clean_key(settings.api_key, "PATCHSHOT_EMBED_API_KEY")
    found = _embedding_server(settings, environment, chat)
    return Endpoint(
        found.base_url,
        own_key or found.key,
        model,
        found.provider.kind,
        found.why,
        "PATCHSHOT_EMBED_API_KEY" if own_key or not found.key else found.key_setting,
        found.url_setting,
        "PATCHSHOT_EMBED_MODEL",
    )


def normalise_base_url(value: str, setting: str) -> str:
    """`value` without blanks, a slash at the end, or the path of one call (`/chat/completions`).

    Raises ConfigurationError when it is no http(s) URL; `setting` names where it came from.
    """
    url = value.strip().rstrip("/")
    parts = _split(url, setting)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        hint = f"http://{url}" if url and "://" not in url else "https://host/v1"
        raise ConfigurationError(
            f"{setting} is not an http(s) URL ({without_credentials(url)!r}): write it in full, "
            f"for example {without_credentials(hint)}"
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(
            f"{setting} has a query or fragment, which calls would lose: remove what follows "
            f"{parts.scheme}://{parts.hostname}{parts.path}"
        )
    for path in _SERVED_PATHS:
        url = url.removesuffix(path)
    return url.rstrip("/")


def without_credentials(url: str) -> str:
    """`url` with `user:password@` removed, fit to print."""
    scheme, separator, rest = url.rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def _split(url: str, setting: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # checked only when read
    except ValueError as error:
        raise ConfigurationError(f"{setting} is not a URL ({error}): correct it") from None
    return parts


def _explicit(settings: ProviderSettings, environment: Mapping[str, str]) -> _Choice | None:
    key = _clean_key(settings.api_key, "PATCHSHOT_API_KEY")
    if settings.base_url and settings.base_url.strip():
        base_url = normalise_base_url(settings.base_url, "PATCHSHOT_BASE_URL")
        return _with_key_of_host(base_url, key, environment, "PATCHSHOT_BASE_URL")
    if key is None:
        return None
    provider = next(p for p in _BY_KEY_PREFIX if key.get_secret_value().startswith(p.key_prefix))
    if provider is _OPENAI:
        base_url, url_setting = _openai_base_url(environment)
    else:
        base_url, url_setting = provider.base_url, "PATCHSHOT_BASE_URL"
    return _Choice(
        provider, base_url, key, "PATCHSHOT_API_KEY", url_setting, "PATCHSHOT_API_KEY is set"
    )


def _with_key_of_host(
    base_url: str, key: SecretStr | None, environment: Mapping[str, str], setting: str
) -> _Choice:
    """An explicit base URL with its own key, or the key of the provider whose URL it is."""
    host = urlsplit(base_url).hostname
    provider = next((p for p in _BY_KEY_PREFIX if p.host == host), _OPENAI)
    why = f"{setting} is set"
    key_setting = setting.replace("BASE_URL", "API_KEY")
    if key is None and provider.host == host:
        key = _environment_key(environment, provider.key_name)
        key_setting = provider.key_name if key else key_setting
    return _Choice(provider, base_url, key, key_setting, setting, why)


def _ambient(environment: Mapping[str, str]) -> _Choice | None:
    for provider in (_OPENROUTER, _OPENAI, _ANTHROPIC):
        key = _environment_key(environment, provider.key_name)
        names_server = provider is _OPENAI and environment.get("OPENAI_BASE_URL", "").strip()
        if key is None and not names_server:
            continue
        base_url, url_setting = provider.base_url, "PATCHSHOT_BASE_URL"
        if provider is _OPENAI:
            base_url, url_setting = _openai_base_url(environment)
        why = f"{provider.key_name if key else 'OPENAI_BASE_URL'} is set"
        return _Choice(provider, base_url, key, provider.key_name, url_setting, why)
    return None


def _embedding_server(
    settings: ProviderSettings, environment: Mapping[str, str], chat: Endpoint | None
) -> _Choice:
    setting = "PATCHSHOT_EMBED_BASE_URL"
    own_url = (settings.base_url or "").strip()
    base_url = normalise_base_url(own_url, setting) if own_url else ""
    if chat is not None and (not base_url or _same_origin(base_url, chat.base_url)):
        provider = next(p for p in _BY_KEY_PREFIX if p.kind == chat.kind)
        why = f"{setting} is set" if base_url else "the server of the chat model"
        url = base_url or chat.base_url
        return _Choice(provider, url, chat.api_key, chat.key_setting, setting, why)
    if base_url:
        return _with_key_of_host(base_url, None, environment, setting)
    found = _ambient(environment)
    if found is None:
        raise ConfigurationError(
            "PATCHSHOT_EMBED_MODEL is set, but no server for it: set PATCHSHOT_EMBED_BASE_URL "
            "(and PATCHSHOT_EMBED_API_KEY if it wants a key)"
        )
    return found


def _same_origin(one: str, other: str) -> bool:
    a, b = urlsplit(one), urlsplit(other)
    return (a.scheme, a.hostname, a.port) == (b.scheme, b.hostname, b.port)


def _openai_base_url(environment: Mapping[str, str]) -> tuple[str, str]:
    given = environment.get("OPENAI_BASE_URL", "").strip()
    if given:
        return normalise_base_url(given, "OPENAI_BASE_URL"), "OPENAI_BASE_URL"
    return _OPENAI.base_url, "PATCHSHOT_BASE_URL"


def _environment_key(environment: Mapping[str, str], name: str) -> SecretStr | None:
    return _clean_key(SecretStr(environment.get(name, "")), name)


def _clean_key(key: SecretStr | None, setting: str) -> SecretStr | None:
    """The key without the line end that `$(cat file)` leaves; None when blank."""
    value = key.get_secret_value().strip() if key else ""
    if not value:
        return None
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigurationError(
            f"{setting} has characters that no HTTP header can carry: copy the key again"
        )
    return SecretStr(value)
