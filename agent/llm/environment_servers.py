"""The servers that the environment variables of other tools and of proxies name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent.errors import ConfigurationError
from agent.llm.endpoint import clean_key, normalise_base_url, same_origin
from agent.llm.protocols import PROTOCOLS
from agent.llm.protocols.base import Provider, ServerProtocol

# Below SANDBOX_PROXY_URL: the page on which the newest miner containers tell what has been spent.
SPENT_PATH = "/api/v1/usage"
OLLAMA_PORT = 11434  # used when OLLAMA_HOST has no port

DEFAULT_PROTOCOL = "openai"  # most servers speak it
PROVIDERS = {p.name: p.provider for p in PROTOCOLS.values() if p.provider is not None}
OPENROUTER = PROVIDERS["openrouter"]


@dataclass(frozen=True, slots=True)
class ChosenServer:
    """A server and its key before the model is known. Fields as in `Endpoint`.

    `offers_model`: its own list may choose the model. A provider's catalogue may not: it has
    hundreds, and the choice costs the user's money. `example` is a model to suggest instead.
    """

    kind: str
    base_url: str
    key: SecretStr | None
    why: str
    key_setting: str = "PATCHSHOT_API_KEY"
    url_setting: str = "PATCHSHOT_BASE_URL"
    usage_url: str | None = None
    embedding_base_url: str | None = None
    offers_model: bool = True
    example: str = ""

    @property
    def protocol(self) -> ServerProtocol:
        """The protocol of the server."""
        return PROTOCOLS[self.kind]

    def owns(self, url: str) -> bool:
        """Whether the key belongs to the server at `url`."""
        urls = (self.base_url, self.embedding_base_url)
        return self.key is not None and any(u is not None and same_origin(u, url) for u in urls)


@dataclass(frozen=True, slots=True)
class _Source:
    """A way to name a server: any one of the variables `names` is enough; `read` reads them."""

    names: tuple[str, ...]
    read: Callable[[Mapping[str, str]], ChosenServer | None]


def _servers(environment: Mapping[str, str], kind: str | None) -> Iterator[ChosenServer]:
    """The servers that are configured (and speak `kind`), in the order in which they are taken.

    Raises ConfigurationError for a malformed variable of the server that is reached.
    """
    for source in _SOURCES:
        found = source.read(environment)
        if found is not None and kind in (None, found.kind):
            yield found


def first_server(environment: Mapping[str, str], kind: str | None) -> ChosenServer | None:
    """The first server that is configured and speaks `kind` (None: any)."""
    return next(_servers(environment, kind), None)


def first_with_embeddings(environment: Mapping[str, str], kind: str | None) -> ChosenServer | None:
    """The first server whose protocol has embeddings, at its address for them."""
    for server in _servers(environment, kind):
        if server.protocol.embeddings is not None:
            return replace(server, base_url=server.embedding_base_url or server.base_url)
    return None


def key_owner(environment: Mapping[str, str], url: str) -> ChosenServer | None:
    """The server of the environment whose key belongs to the server at `url`."""
    for source in _SOURCES:
        try:
            found = source.read(environment)
        except ConfigurationError:
            continue  # a malformed variable of a server that is not asked
        if found is not None and found.owns(url):
            return found
    return None


def passed_over(environment: Mapping[str, str], chosen: str) -> tuple[str, ...]:
    """Variables that name another server than `chosen` (`Endpoint.why`) does."""
    named = [next(iter(_given(environment, source.names)), None) for source in _SOURCES]
    return tuple(name for name in named if name is not None and not chosen.startswith(name))


def _by_key(name: str, environment: Mapping[str, str]) -> ChosenServer | None:
    """The provider's server, if its key (or the address that suffices) is set."""
    provider = PROVIDERS[name]
    key = _key(environment, provider.key_name)
    if key is None and (provider.needs_key or not _given(environment, (provider.url_name,))):
        return None
    why = f"{provider.key_name if key else provider.url_name} is set"
    server = provider_server(name, key, why, environment)
    if not provider.before_proxies:
        return server
    # Beside a miner's proxy that keeps the account, or with the contract's bound on the cost, the
    # run is a miner's: the bound then picks a model from the catalogue.
    proxy = _url(environment, "SANDBOX_PROXY_URL")
    bounded = bool(_given(environment, ("RIDGES_MAX_COST_USD",)))
    return replace(server, usage_url=proxy and proxy + SPENT_PATH, offers_model=bounded)


def provider_server(
    name: str, key: SecretStr | None, why: str, environment: Mapping[str, str]
) -> ChosenServer:
    """The provider's own server, or the one that its `url_name` gives instead."""
    provider = PROVIDERS[name]
    given = _url(environment, provider.url_name) if provider.url_name else None
    return ChosenServer(
        name,
        given or provider.base_url,
        key,
        why,
        provider.key_name,
        provider.url_name if given else "PATCHSHOT_BASE_URL",
        offers_model=given is not None,
        example=provider.example,
    )


def _ridges(environment: Mapping[str, str]) -> ChosenServer | None:
    name = environment.get("RIDGES_INFERENCE_PROVIDER", "").strip().lower()
    base_url = _url(environment, "RIDGES_INFERENCE_BASE_URL")
    if not name and base_url is None:
        return None
    is_openrouter = name == "openrouter"
    base_url = base_url or (OPENROUTER.base_url if is_openrouter else None)
    if base_url is None:
        raise ConfigurationError(
            f"RIDGES_INFERENCE_PROVIDER is {name!r}, but its address is not known: set "
            "RIDGES_INFERENCE_BASE_URL"
        )
    return ChosenServer(
        "openrouter" if is_openrouter else DEFAULT_PROTOCOL,
        base_url,
        _key(environment, "RIDGES_INFERENCE_API_KEY"),
        f"RIDGES_INFERENCE_{'PROVIDER' if name else 'BASE_URL'} is set",
        "RIDGES_INFERENCE_API_KEY",
        "RIDGES_INFERENCE_BASE_URL",
        embedding_base_url=_url(environment, "RIDGES_INFERENCE_EMBEDDING_BASE_URL"),
        offers_model=not is_openrouter,
        example=OPENROUTER.example,
    )


def _proxy(name: str, embeddings: str, environment: Mapping[str, str]) -> ChosenServer | None:
    """The miners' proxy at the address in the variable `name`."""
    base_url = _url(environment, name)
    if base_url is None:
        return None
    other = _url(environment, embeddings) if embeddings else None
    return ChosenServer(
        "miner", base_url, None, f"{name} is set", url_setting=name, embedding_base_url=other
    )


def _ollama(environment: Mapping[str, str]) -> ChosenServer | None:
    """OLLAMA_HOST as Ollama reads it: `host`, `host:port` or a URL; 0.0.0.0 is where it listens."""
    given = environment.get("OLLAMA_HOST", "").strip()
    if not given:
        return None
    is_url = "://" in given
    url = normalise_base_url(given if is_url else f"http://{given}", "OLLAMA_HOST")
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - recognised, not bound to
        host = "127.0.0.1"
    port = parts.port or (None if is_url else OLLAMA_PORT)
    authority = f"[{host}]" if ":" in host else host
    base_url = f"{parts.scheme}://{authority}{f':{port}' if port else ''}{parts.path}"
    return ChosenServer(
        DEFAULT_PROTOCOL, base_url, None, "OLLAMA_HOST is set", url_setting="OLLAMA_HOST"
    )


def _source_of(name: str, provider: Provider) -> _Source:
    names = (provider.key_name,) if provider.needs_key else (provider.key_name, provider.url_name)
    return _Source(names, partial(_by_key, name))


_SOURCES = (
    *(_source_of(name, p) for name, p in PROVIDERS.items() if p.before_proxies),
    _Source(("RIDGES_INFERENCE_PROVIDER", "RIDGES_INFERENCE_BASE_URL"), _ridges),
    _Source(("SANDBOX_PROXY_URL",), partial(_proxy, "SANDBOX_PROXY_URL", "")),
    _Source(("AI_PROXY_URL",), partial(_proxy, "AI_PROXY_URL", "AI_EMBEDDING_PROXY_URL")),
    *(_source_of(name, p) for name, p in PROVIDERS.items() if not p.before_proxies),
    _Source(("OLLAMA_HOST",), _ollama),
)

ENVIRONMENT_NAMES = (
    *(name for source in _SOURCES for name in source.names),
    *(p.url_name for p in PROVIDERS.values() if p.url_name and p.needs_key),
    "RIDGES_INFERENCE_API_KEY",
    "RIDGES_INFERENCE_EMBEDDING_BASE_URL",
    "RIDGES_MAX_COST_USD",
    "AI_EMBEDDING_PROXY_URL",
    "EVALUATION_RUN_ID",
    "RUN_ID",
)
"""All environment variables that this module reads."""


def _given(environment: Mapping[str, str], names: tuple[str, ...]) -> list[str]:
    return [name for name in names if environment.get(name, "").strip()]


def _key(environment: Mapping[str, str], name: str) -> SecretStr | None:
    return clean_key(SecretStr(environment.get(name, "")), name)


def _url(environment: Mapping[str, str], name: str) -> str | None:
    given = environment.get(name, "").strip()
    return normalise_base_url(given, name) if given else None
