"""Which server is asked: a pure choice over explicit settings and the usual environment variables.

Order, the first that is set wins:

    PATCHSHOT_BASE_URL, PATCHSHOT_API_KEY     explicit
    OPENROUTER_API_KEY                        before the proxies: a miner's container sets both
    RIDGES_INFERENCE_PROVIDER, _API_KEY, _BASE_URL, _EMBEDDING_BASE_URL
    SANDBOX_PROXY_URL, then AI_PROXY_URL (with AI_EMBEDDING_PROXY_URL)
    OPENAI_API_KEY or OPENAI_BASE_URL, then ANTHROPIC_API_KEY (with ANTHROPIC_BASE_URL)
    OLLAMA_HOST                               a local server

A local server is taken only where OLLAMA_HOST names it: whatever else listens on loopback is never
probed, because a prompt holds the user's code. A key goes only to the host it belongs to: that of
its own base URL, or the provider's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent.errors import ConfigurationError
from agent.llm.endpoint import (
    Endpoint,
    EndpointKind,
    clean_key,
    normalise_base_url,
    same_origin,
)
from agent.llm.sources import (
    PROVIDERS,
    Server,
    first_server,
    first_with_embeddings,
    key_owner,
    passed_over,
)

# What the miners' first proxy takes from somebody who is no evaluation run.
NO_RUN_ID = "nocache-1"


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What the user set explicitly (PATCHSHOT_BASE_URL, _API_KEY, _MODEL, ... or their flags).

    `protocol` is None where it follows from the server. `run_id` is what the miner's input names.
    """

    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str | None = None
    protocol: EndpointKind | None = None
    run_id: str | None = None


def run_id(environment: Mapping[str, str], given: str | None = None) -> str:
    """The run's name for the miners' proxy: EVALUATION_RUN_ID, `given` (the input's), RUN_ID.

    `nocache-1` where there is none. Pure.
    """
    named = (environment.get("EVALUATION_RUN_ID"), given, environment.get("RUN_ID"))
    return next((name.strip() for name in named if name and name.strip()), NO_RUN_ID)


def choose_endpoint(settings: ProviderSettings, environment: Mapping[str, str]) -> Endpoint:
    """Choose the chat server. Pure: nothing is asked, nothing is read but the arguments.

    `environment` holds the variables of `agent.llm.sources.ENVIRONMENT_NAMES` that are set; blank
    ones count as unset. `Endpoint.model` is "" where none is set and the server's own list may
    choose it. Raises ConfigurationError, naming the variables to set, when no server or no model
    is chosen or a value is malformed.
    """
    chosen = _explicit(settings, environment) or first_server(environment, settings.protocol)
    if chosen is None:
        raise ConfigurationError(_no_server(settings))
    model = (settings.model or "").strip()
    if not model and not chosen.offers_model:
        raise ConfigurationError(
            f"no model is chosen for {chosen.base_url} ({chosen.why}): set PATCHSHOT_MODEL, for "
            f"example {chosen.example}"
        )
    endpoint = _endpoint(chosen, model, settings, environment)
    return replace(endpoint, unused=passed_over(environment, chosen.why))


def choose_embedding_endpoint(
    settings: ProviderSettings, environment: Mapping[str, str], chat: Endpoint | None = None
) -> Endpoint | None:
    """Choose the embedding server from PATCHSHOT_EMBED_*; None where there is none.

    Without a base URL of its own it is the chat server (with the chat server's key), or else the
    first server of the environment that has embeddings. Without a model there are none, unless the
    server is a miner's proxy, which offers one. Pure. Raises ConfigurationError like
    `choose_endpoint`, and when there is an embedding server without a model.
    """
    model = (settings.model or "").strip()
    if not (model or (settings.base_url or "").strip() or (chat and chat.kind == "miner")):
        return None
    found = _embedding_server(settings, environment, chat)
    if found is None:
        raise ConfigurationError(
            "PATCHSHOT_EMBED_MODEL is set, but no server for it: set PATCHSHOT_EMBED_BASE_URL "
            "(and PATCHSHOT_EMBED_API_KEY if it wants a key)"
        )
    if not model and found.kind != "miner":
        raise ConfigurationError(
            "PATCHSHOT_EMBED_BASE_URL is set without a model: set PATCHSHOT_EMBED_MODEL too"
        )
    own_key = clean_key(settings.api_key, "PATCHSHOT_EMBED_API_KEY")
    if own_key or not found.key:
        found = replace(found, key=own_key, key_setting="PATCHSHOT_EMBED_API_KEY")
    endpoint = _endpoint(found, model, settings, environment)
    return replace(endpoint, model_setting="PATCHSHOT_EMBED_MODEL")


def _endpoint(
    server: Server, model: str, settings: ProviderSettings, environment: Mapping[str, str]
) -> Endpoint:
    return Endpoint(
        server.base_url,
        server.key,
        model,
        server.kind,
        server.why,
        server.key_setting,
        server.url_setting,
        run_id=run_id(environment, settings.run_id) if server.kind == "miner" else "",
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


def _explicit(settings: ProviderSettings, environment: Mapping[str, str]) -> Server | None:
    key = clean_key(settings.api_key, "PATCHSHOT_API_KEY")
    if settings.base_url and settings.base_url.strip():
        server = _at(settings.base_url, settings.protocol, environment, "PATCHSHOT_BASE_URL")
        return replace(server, key=key, key_setting="PATCHSHOT_API_KEY") if key else server
    if key is None:
        return None
    value = key.get_secret_value()
    provider = next(
        (p for p in PROVIDERS if p.kind == settings.protocol),
        next((p for p in PROVIDERS if value.startswith(p.key_prefix)), None),
    )
    if provider is None:  # it may belong to anybody, and goes to nobody
        raise ConfigurationError(
            "PATCHSHOT_API_KEY does not tell whose key it is (OpenRouter's, Anthropic's and "
            "OpenAI's begin with sk-): set PATCHSHOT_BASE_URL too, or PATCHSHOT_PROTOCOL"
        )
    server = provider.server(key, "PATCHSHOT_API_KEY is set", environment)
    return replace(server, key_setting="PATCHSHOT_API_KEY")


def _at(
    url: str, protocol: EndpointKind | None, environment: Mapping[str, str], setting: str
) -> Server:
    """An explicit base URL, with the key of the environment that belongs to that very server."""
    base_url = normalise_base_url(url, setting)
    owner = key_owner(environment, base_url)
    provider = next((p for p in PROVIDERS if same_origin(p.base_url, base_url)), None)
    return Server(
        protocol or (provider.kind if provider else _spoken_at(url)),
        base_url,
        owner.key if owner else None,
        f"{setting} is set",
        owner.key_setting if owner else setting.replace("BASE_URL", "API_KEY"),
        setting,
        offers_model=provider is None,
        example=provider.example if provider else "",
    )


def _spoken_at(url: str) -> EndpointKind:
    """What a foreign server speaks, told from the path: most speak OpenAI's protocol."""
    path = urlsplit(url.strip()).path.rstrip("/").lower()
    if path.endswith("/messages") or "anthropic" in path.split("/"):
        return "anthropic"
    if path.endswith(("/inference", "/embedding")):
        return "miner"
    return "openai"


def _embedding_server(
    settings: ProviderSettings, environment: Mapping[str, str], chat: Endpoint | None
) -> Server | None:
    setting = "PATCHSHOT_EMBED_BASE_URL"
    if settings.base_url and settings.base_url.strip():
        server = _at(settings.base_url, settings.protocol, environment, setting)
        if chat is None or not same_origin(server.base_url, chat.base_url):
            return server
        kind = settings.protocol or chat.kind
        return replace(server, key=chat.api_key, key_setting=chat.key_setting, kind=kind)
    if chat is None or chat.kind == "anthropic":
        return first_with_embeddings(environment, settings.protocol)
    return Server(
        settings.protocol or chat.kind,
        chat.embedding_base_url or chat.base_url,
        chat.api_key,
        "the server of the chat model",
        chat.key_setting,
        setting,
    )
