"""Chooses the model server from explicit settings and the usual environment variables.

The first of these that is set wins:

    PATCHSHOT_BASE_URL, PATCHSHOT_API_KEY     explicit settings
    OPENROUTER_API_KEY                        before the proxies: a miner's container sets both
    RIDGES_INFERENCE_PROVIDER, _API_KEY, _BASE_URL, _EMBEDDING_BASE_URL
    SANDBOX_PROXY_URL, then AI_PROXY_URL (with AI_EMBEDDING_PROXY_URL)
    OPENAI_API_KEY or OPENAI_BASE_URL, then ANTHROPIC_API_KEY (with ANTHROPIC_BASE_URL)
    OLLAMA_HOST                               a local server

The names and addresses of the providers come from their protocols (`agent.llm.protocols`). A local
server is used only when OLLAMA_HOST names it. Other loopback ports are never probed, because a
prompt holds the user's code. A key is sent only to the server that it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent.errors import ConfigurationError
from agent.llm.endpoint import Endpoint, clean_key, normalise_base_url, same_origin
from agent.llm.environment_servers import (
    DEFAULT_PROTOCOL,
    PROVIDERS,
    ChosenServer,
    first_server,
    first_with_embeddings,
    key_owner,
    passed_over,
    provider_server,
)
from agent.llm.protocols import PROTOCOLS

# The run id that the miners' first proxy accepts from a caller that is not an evaluation run.
NO_RUN_ID = "nocache-1"


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What the user has set explicitly (PATCHSHOT_BASE_URL, _API_KEY, _MODEL, ... or options).

    `protocol` is None when it follows from the server.
    """

    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str | None = None
    protocol: str | None = None


def run_id(environment: Mapping[str, str]) -> str:
    """The run's id for the miners' proxy: EVALUATION_RUN_ID, else RUN_ID."""
    named = (environment.get("EVALUATION_RUN_ID"), environment.get("RUN_ID"))
    return next((name.strip() for name in named if name and name.strip()), NO_RUN_ID)


def choose_endpoint(settings: ProviderSettings, environment: Mapping[str, str]) -> Endpoint:
    """Choose the chat server. Pure: reads nothing but its arguments.

    `environment` holds the variables of `ENVIRONMENT_NAMES` that are set; blank ones count as
    unset. `Endpoint.model` is "" when none is set and the server's own list may choose it. Raises
    ConfigurationError, naming the variables to set, when no server or no model is chosen or a value
    is malformed.
    """
    _check_protocol(settings.protocol, "PATCHSHOT_PROTOCOL", list(PROTOCOLS))
    chosen = _explicit_server(settings, environment) or first_server(environment, settings.protocol)
    if chosen is None:
        raise ConfigurationError(_no_server(settings))
    model = (settings.model or "").strip()
    if not model and not chosen.offers_model:
        raise ConfigurationError(
            f"no model is chosen for {chosen.base_url} ({chosen.why}): set PATCHSHOT_MODEL, for "
            f"example {chosen.example}"
        )
    endpoint = _endpoint(chosen, model, environment)
    return replace(endpoint, unused=passed_over(environment, chosen.why))


def choose_embedding_endpoint(
    settings: ProviderSettings, environment: Mapping[str, str], chat: Endpoint | None = None
) -> Endpoint | None:
    """Choose the embedding server from PATCHSHOT_EMBED_*; None when there is none. Pure.

    Without a base URL of its own it is the chat server (with the chat server's key), or else the
    first server of the environment that has embeddings. Without a model there is none, unless the
    server is a miner's proxy, which offers one. Raises ConfigurationError like `choose_endpoint`,
    and when there is an embedding server without a model.
    """
    able = [name for name, protocol in PROTOCOLS.items() if protocol.embeddings is not None]
    _check_protocol(settings.protocol, "PATCHSHOT_EMBED_PROTOCOL", able)
    model = (settings.model or "").strip()
    offered = chat is not None and PROTOCOLS[chat.kind].serves_runs
    if not (model or (settings.base_url or "").strip() or offered):
        return None
    found = _embedding_server(settings, environment, chat)
    if found is None:
        raise ConfigurationError(
            "PATCHSHOT_EMBED_MODEL is set, but no server for it: set PATCHSHOT_EMBED_BASE_URL "
            "(and PATCHSHOT_EMBED_API_KEY if it wants a key)"
        )
    if not model and not found.protocol.serves_runs:
        raise ConfigurationError(
            "PATCHSHOT_EMBED_BASE_URL is set without a model: set PATCHSHOT_EMBED_MODEL too"
        )
    own_key = clean_key(settings.api_key, "PATCHSHOT_EMBED_API_KEY")
    if own_key or not found.key:
        found = replace(found, key=own_key, key_setting="PATCHSHOT_EMBED_API_KEY")
    endpoint = _endpoint(found, model, environment)
    return replace(endpoint, model_setting="PATCHSHOT_EMBED_MODEL")


def _check_protocol(name: str | None, setting: str, known: list[str]) -> None:
    if name is not None and name not in known:
        raise ConfigurationError(
            f"{setting} is {name!r}: it must be one of auto, {', '.join(sorted(known))}"
        )


def _endpoint(server: ChosenServer, model: str, environment: Mapping[str, str]) -> Endpoint:
    return Endpoint(
        server.base_url,
        server.key,
        model,
        server.kind,
        server.why,
        server.key_setting,
        server.url_setting,
        run_id=run_id(environment) if server.protocol.serves_runs else "",
        usage_url=server.usage_url,
        embedding_base_url=server.embedding_base_url,
    )


def _no_server(settings: ProviderSettings) -> str:
    if settings.protocol is not None:
        return (
            f"no server that speaks {settings.protocol!r} (PATCHSHOT_PROTOCOL) is configured: set "
            "PATCHSHOT_BASE_URL, or leave PATCHSHOT_PROTOCOL out"
        )
    return (
        "no model server is configured: set PATCHSHOT_BASE_URL and PATCHSHOT_MODEL (and "
        "PATCHSHOT_API_KEY if it wants a key), or one of OPENROUTER_API_KEY, OPENAI_API_KEY, "
        "ANTHROPIC_API_KEY together with PATCHSHOT_MODEL, or OLLAMA_HOST for a local server"
    )


# ------------------------------------------------------------------------------- explicit settings


def _explicit_server(
    settings: ProviderSettings, environment: Mapping[str, str]
) -> ChosenServer | None:
    key = clean_key(settings.api_key, "PATCHSHOT_API_KEY")
    if settings.base_url and settings.base_url.strip():
        server = _server_at(settings.base_url, settings.protocol, environment, "PATCHSHOT_BASE_URL")
        return replace(server, key=key, key_setting="PATCHSHOT_API_KEY") if key else server
    if key is None:
        return None
    name = settings.protocol if settings.protocol in PROVIDERS else _name_by_key(key)
    if name is None:  # the key may belong to anybody, so it is sent to nobody
        raise ConfigurationError(
            "PATCHSHOT_API_KEY does not tell whose key it is (OpenRouter's, Anthropic's and "
            "OpenAI's begin with sk-): set PATCHSHOT_BASE_URL too, or PATCHSHOT_PROTOCOL"
        )
    server = provider_server(name, key, "PATCHSHOT_API_KEY is set", environment)
    return replace(server, key_setting="PATCHSHOT_API_KEY")


def _name_by_key(key: SecretStr) -> str | None:
    """The provider whose keys begin like `key`; the longest prefix decides."""
    value = key.get_secret_value()
    fitting = [name for name, p in PROVIDERS.items() if value.startswith(p.key_prefix)]
    return max(fitting, key=lambda name: len(PROVIDERS[name].key_prefix), default=None)


def _server_at(
    url: str, protocol: str | None, environment: Mapping[str, str], setting: str
) -> ChosenServer:
    """An explicit base URL, with the key of the environment that belongs to that very server."""
    base_url = normalise_base_url(url, setting)
    owner = key_owner(environment, base_url)
    name = next((n for n, p in PROVIDERS.items() if same_origin(p.base_url, base_url)), None)
    return ChosenServer(
        protocol or name or _name_by_path(url),
        base_url,
        owner.key if owner else None,
        f"{setting} is set",
        owner.key_setting if owner else setting.replace("BASE_URL", "API_KEY"),
        setting,
        offers_model=name is None,
        example=PROVIDERS[name].example if name else "",
    )


def _name_by_path(url: str) -> str:
    """The protocol of a user's own server, recognised by the path of its address."""
    path = urlsplit(url.strip()).path.rstrip("/").lower()
    return next((p.name for p in PROTOCOLS.values() if p.recognises(path)), DEFAULT_PROTOCOL)


def _embedding_server(
    settings: ProviderSettings, environment: Mapping[str, str], chat: Endpoint | None
) -> ChosenServer | None:
    setting = "PATCHSHOT_EMBED_BASE_URL"
    if settings.base_url and settings.base_url.strip():
        return _server_beside(settings, environment, chat, setting)
    if chat is None or PROTOCOLS[chat.kind].embeddings is None:
        return first_with_embeddings(environment, settings.protocol)
    return ChosenServer(
        settings.protocol or chat.kind,
        chat.embedding_base_url or chat.base_url,
        chat.api_key,
        "the server of the chat model",
        chat.key_setting,
        setting,
    )


def _server_beside(
    settings: ProviderSettings,
    environment: Mapping[str, str],
    chat: Endpoint | None,
    setting: str,
) -> ChosenServer:
    """The server of an explicit base URL; with the chat server's key where it is that server."""
    server = _server_at(settings.base_url or "", settings.protocol, environment, setting)
    if chat is None or not same_origin(server.base_url, chat.base_url):
        return server
    kind = settings.protocol or chat.kind
    return replace(server, key=chat.api_key, key_setting=chat.key_setting, kind=kind)
