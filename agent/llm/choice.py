"""Chooses the model server. The first of these that is set wins.

    PATCHSHOT_BASE_URL, PATCHSHOT_API_KEY     explicit settings
    OPENROUTER_API_KEY                        before the proxies: a miner's container sets both
    RIDGES_INFERENCE_PROVIDER, _API_KEY, _BASE_URL, _EMBEDDING_BASE_URL
    SANDBOX_PROXY_URL, then AI_PROXY_URL (with AI_EMBEDDING_PROXY_URL)
    OPENAI_API_KEY or OPENAI_BASE_URL, then ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL
    OLLAMA_HOST                               a local server

Loopback ports are never probed, because a prompt holds the user's code. A key is sent only to the
server that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent.errors import ConfigurationError
from agent.llm.endpoint import Endpoint, clean_key, normalise_base_url, same_origin
from agent.llm.protocols import PROTOCOLS
from agent.settings import Settings

# The run id that the miners' first proxy accepts from a caller that is not an evaluation run.
NO_RUN_ID = "nocache-1"
OLLAMA_PORT = 11434  # used when OLLAMA_HOST has no port

_DEFAULT_PROTOCOL = "openai"  # most servers speak it
_PROVIDERS = {p.name: p.provider for p in PROTOCOLS.values() if p.provider is not None}


def choose_endpoint(settings: Settings, environment: Mapping[str, str]) -> Endpoint:
    """Choose the chat server from the settings and the variables of `ENVIRONMENT_NAMES`. Pure.

    `Endpoint.model` is "" when the server's own list may choose it. Raises ConfigurationError.
    """
    protocol = None if settings.protocol == "auto" else settings.protocol
    if protocol is not None and protocol not in PROTOCOLS:
        raise ConfigurationError(
            f"PATCHSHOT_PROTOCOL is {protocol!r}: it must be one of auto, "
            f"{', '.join(sorted(PROTOCOLS))}"
        )
    chosen = _explicit_server(settings, protocol, environment)
    chosen = chosen or next(_servers(environment, protocol), None)
    if chosen is None:
        raise ConfigurationError(
            "no model server is configured: set OPENAI_API_KEY (or OPENROUTER_API_KEY, "
            "ANTHROPIC_API_KEY) and PATCHSHOT_MODEL; or OLLAMA_HOST for a local server; or "
            "PATCHSHOT_BASE_URL and PATCHSHOT_MODEL (and PATCHSHOT_API_KEY) for any other server"
        )
    model = (settings.model or "").strip()
    # A provider's own catalogue may not choose the model: it has hundreds, and the choice costs the
    # user's money. With the contract's bound on the cost the run is a miner's, whose proxy may.
    provider = _provider_at(chosen.base_url)
    is_bounded = _is_set(environment, "RIDGES_MAX_COST_USD")
    if not model and provider and not (is_bounded and _PROVIDERS[provider].before_proxies):
        raise ConfigurationError(
            f"no model is chosen for {chosen.base_url} ({chosen.why}): set PATCHSHOT_MODEL, for "
            f"example {_PROVIDERS[provider].example}"
        )
    return replace(_with_run(chosen, environment), model=model)


def choose_embedding_endpoint(
    settings: Settings, environment: Mapping[str, str], chat: Endpoint | None = None
) -> Endpoint | None:
    """Choose the embedding server from PATCHSHOT_EMBED_*; None when there is none. Pure.

    Without a base URL it is the chat server, or else the first of the environment that has
    embeddings. Raises ConfigurationError.
    """
    model = (settings.embed_model or "").strip()
    url = (settings.embed_base_url or "").strip()
    offered = chat is not None and PROTOCOLS[chat.kind].serves_runs
    if not (model or url or offered):
        return None
    server = _embedding_server(url, environment, chat)
    if server is None:
        raise ConfigurationError(
            "PATCHSHOT_EMBED_MODEL is set, but no server for it: set PATCHSHOT_EMBED_BASE_URL "
            "(and PATCHSHOT_EMBED_API_KEY if it wants a key)"
        )
    if not model and not PROTOCOLS[server.kind].serves_runs:
        raise ConfigurationError(
            "PATCHSHOT_EMBED_BASE_URL is set without a model: set PATCHSHOT_EMBED_MODEL too"
        )
    own_key = clean_key(settings.embed_api_key, "PATCHSHOT_EMBED_API_KEY")
    if own_key or not server.api_key:
        server = replace(server, api_key=own_key, key_setting="PATCHSHOT_EMBED_API_KEY")
    server = _with_run(server, environment)
    return replace(server, model=model, model_setting="PATCHSHOT_EMBED_MODEL")


def _with_run(server: Endpoint, environment: Mapping[str, str]) -> Endpoint:
    """The server with the run's id (EVALUATION_RUN_ID, else RUN_ID) where it keeps accounts."""
    if not PROTOCOLS[server.kind].serves_runs:
        return server
    names = ("EVALUATION_RUN_ID", "RUN_ID")
    ids = [environment[name].strip() for name in names if _is_set(environment, name)]
    return replace(server, run_id=ids[0] if ids else NO_RUN_ID)


# ------------------------------------------------------------------------------- explicit settings


def _explicit_server(
    settings: Settings, protocol: str | None, environment: Mapping[str, str]
) -> Endpoint | None:
    key = clean_key(settings.api_key, "PATCHSHOT_API_KEY")
    if settings.base_url and settings.base_url.strip():
        server = _server_at(settings.base_url, protocol, environment, "PATCHSHOT_BASE_URL")
        return replace(server, api_key=key, key_setting="PATCHSHOT_API_KEY") if key else server
    if key is None:
        return None
    # The longest prefix tells whose key it is.
    fitting = [n for n, p in _PROVIDERS.items() if key.get_secret_value().startswith(p.key_prefix)]
    name = max(fitting, key=lambda name: len(_PROVIDERS[name].key_prefix), default=None)
    if protocol in _PROVIDERS:
        name = protocol
    if name is None:  # the key may belong to anybody, so it is sent to nobody
        raise ConfigurationError(
            "PATCHSHOT_API_KEY does not tell whose key it is (OpenRouter's, Anthropic's and "
            "OpenAI's begin with sk-): set PATCHSHOT_BASE_URL too, or PATCHSHOT_PROTOCOL"
        )
    server = _provider_server(name, key, "PATCHSHOT_API_KEY is set", environment)
    return replace(server, key_setting="PATCHSHOT_API_KEY")


def _server_at(
    url: str, protocol: str | None, environment: Mapping[str, str], setting: str
) -> Endpoint:
    """An explicit base URL, with the key of the environment that belongs to that very server."""
    base_url = normalise_base_url(url, setting)
    owner = _key_owner(environment, base_url)
    path = urlsplit(url.strip()).path.rstrip("/").lower()
    by_path = next((p.name for p in PROTOCOLS.values() if p.recognises(path)), _DEFAULT_PROTOCOL)
    return Endpoint(
        base_url,
        owner.api_key if owner else None,
        "",
        protocol or _provider_at(base_url) or by_path,
        f"{setting} is set",
        owner.key_setting if owner else setting.replace("BASE_URL", "API_KEY"),
        setting,
    )


def _embedding_server(
    url: str, environment: Mapping[str, str], chat: Endpoint | None
) -> Endpoint | None:
    setting = "PATCHSHOT_EMBED_BASE_URL"
    if url:
        server = _server_at(url, None, environment, setting)
        if chat is None or not same_origin(server.base_url, chat.base_url):
            return server
        return replace(server, api_key=chat.api_key, key_setting=chat.key_setting, kind=chat.kind)
    if chat is not None and PROTOCOLS[chat.kind].embeddings is not None:
        why, base_url = "the server of the chat model", chat.embedding_base_url or chat.base_url
        return Endpoint(base_url, chat.api_key, "", chat.kind, why, chat.key_setting, setting)
    for server in _servers(environment, None):
        if PROTOCOLS[server.kind].embeddings is not None:
            return replace(server, base_url=server.embedding_base_url or server.base_url)
    return None


# --------------------------------------------------- servers that the environment's variables name


def _servers(environment: Mapping[str, str], kind: str | None) -> Iterator[Endpoint]:
    """The servers that are configured (and speak `kind`), in the order in which they are taken.

    Raises ConfigurationError for a malformed variable of the server that is reached.
    """
    for read in _SOURCES:
        server = read(environment)
        if server is not None and kind in (None, server.kind):
            yield server


def _key_owner(environment: Mapping[str, str], url: str) -> Endpoint | None:
    """The server of the environment whose key belongs to the server at `url`."""
    for read in _SOURCES:
        try:
            server = read(environment)
        except ConfigurationError:
            continue  # a malformed variable of a server that is not asked
        if server is None or server.api_key is None:
            continue
        places = filter(None, (server.base_url, server.embedding_base_url))
        if any(same_origin(place, url) for place in places):
            return server
    return None


def _provider_at(url: str) -> str | None:
    return next((n for n, p in _PROVIDERS.items() if same_origin(p.base_url, url)), None)


def _provider_server(
    name: str, key: SecretStr | None, why: str, environment: Mapping[str, str]
) -> Endpoint:
    """The provider's own server, or the one that its `url_name` gives instead."""
    provider = _PROVIDERS[name]
    given = _url(environment, provider.url_name)
    url_setting = provider.url_name if given else "PATCHSHOT_BASE_URL"
    return Endpoint(given or provider.base_url, key, "", name, why, provider.key_name, url_setting)


def _by_key(name: str, environment: Mapping[str, str]) -> Endpoint | None:
    provider = _PROVIDERS[name]
    key = _key(environment, provider.key_name)
    if key is None and not _is_set(environment, provider.url_name):
        return None
    why = f"{provider.key_name if key else provider.url_name} is set"
    return _provider_server(name, key, why, environment)


def _ridges(environment: Mapping[str, str]) -> Endpoint | None:
    name = environment.get("RIDGES_INFERENCE_PROVIDER", "").strip().lower()
    base_url = _url(environment, "RIDGES_INFERENCE_BASE_URL")
    if not name and base_url is None:
        return None
    is_openrouter = name == "openrouter"
    base_url = base_url or (_PROVIDERS[name].base_url if is_openrouter else None)
    if base_url is None:
        raise ConfigurationError(
            f"RIDGES_INFERENCE_PROVIDER is {name!r}, but its address is not known: set "
            "RIDGES_INFERENCE_BASE_URL"
        )
    return Endpoint(
        base_url,
        _key(environment, "RIDGES_INFERENCE_API_KEY"),
        "",
        "openrouter" if is_openrouter else _DEFAULT_PROTOCOL,
        f"RIDGES_INFERENCE_{'PROVIDER' if name else 'BASE_URL'} is set",
        "RIDGES_INFERENCE_API_KEY",
        "RIDGES_INFERENCE_BASE_URL",
        embedding_base_url=_url(environment, "RIDGES_INFERENCE_EMBEDDING_BASE_URL"),
    )


def _proxy(name: str, embeddings: str, environment: Mapping[str, str]) -> Endpoint | None:
    base_url = _url(environment, name)
    if base_url is None:
        return None
    other = _url(environment, embeddings)
    why = f"{name} is set"
    return Endpoint(base_url, None, "", "miner", why, url_setting=name, embedding_base_url=other)


def _ollama(environment: Mapping[str, str]) -> Endpoint | None:
    """OLLAMA_HOST as Ollama reads it: `host`, `host:port` or a URL; 0.0.0.0 is where it listens."""
    given = environment.get("OLLAMA_HOST", "").strip()
    if not given:
        return None
    is_url = "://" in given
    parts = urlsplit(normalise_base_url(given if is_url else f"http://{given}", "OLLAMA_HOST"))
    host = parts.hostname or ""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - recognised, not bound to
        host = "127.0.0.1"
    port = parts.port or (None if is_url else OLLAMA_PORT)
    authority = f"[{host}]" if ":" in host else host
    base_url = f"{parts.scheme}://{authority}{f':{port}' if port else ''}{parts.path}"
    why = "OLLAMA_HOST is set"
    return Endpoint(base_url, None, "", _DEFAULT_PROTOCOL, why, url_setting="OLLAMA_HOST")


_SOURCES: tuple[Callable[[Mapping[str, str]], Endpoint | None], ...] = (
    *(partial(_by_key, name) for name, p in _PROVIDERS.items() if p.before_proxies),
    _ridges,
    partial(_proxy, "SANDBOX_PROXY_URL", ""),
    partial(_proxy, "AI_PROXY_URL", "AI_EMBEDDING_PROXY_URL"),
    *(partial(_by_key, name) for name, p in _PROVIDERS.items() if not p.before_proxies),
    _ollama,
)

ENVIRONMENT_NAMES = (
    *(p.key_name for p in _PROVIDERS.values()),
    *(p.url_name for p in _PROVIDERS.values() if p.url_name),
    "RIDGES_INFERENCE_PROVIDER",
    "RIDGES_INFERENCE_API_KEY",
    "RIDGES_INFERENCE_BASE_URL",
    "RIDGES_INFERENCE_EMBEDDING_BASE_URL",
    "RIDGES_MAX_COST_USD",
    "SANDBOX_PROXY_URL",
    "AI_PROXY_URL",
    "AI_EMBEDDING_PROXY_URL",
    "EVALUATION_RUN_ID",
    "RUN_ID",
    "OLLAMA_HOST",
)
"""All environment variables that this module reads."""


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return bool(environment.get(name, "").strip())


def _key(environment: Mapping[str, str], name: str) -> SecretStr | None:
    return clean_key(SecretStr(environment.get(name, "")), name)


def _url(environment: Mapping[str, str], name: str) -> str | None:
    given = environment.get(name, "").strip()
    return normalise_base_url(given, name) if given else None
