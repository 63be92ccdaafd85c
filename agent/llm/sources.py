"""The model servers that environment variables name, in the order in which they are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent.errors import ConfigurationError
from agent.llm.endpoint import EndpointKind, clean_key, normalise_base_url, same_origin

# Where the proxy of the newest miner containers says what is spent (below SANDBOX_PROXY_URL).
_SPENT_PATH = "/api/v1/usage"
_OLLAMA_PORT = 11434  # where OLLAMA_HOST names none


@dataclass(frozen=True, slots=True)
class Server:
    """A server and a key, before the model is known. Fields as in `agent.llm.endpoint.Endpoint`.

    `offers_model`: its own list may choose the model. A provider's catalogue may not: it has
    hundreds, and the choice costs the user's money. `example` is a model to name instead.
    """

    kind: EndpointKind
    base_url: str
    key: SecretStr | None
    why: str
    key_setting: str = "PATCHSHOT_API_KEY"
    url_setting: str = "PATCHSHOT_BASE_URL"
    usage_url: str | None = None
    embedding_base_url: str | None = None
    offers_model: bool = True
    example: str = ""

    def owns(self, url: str) -> bool:
        """Whether the key belongs to the server at `url`."""
        places = (self.base_url, self.embedding_base_url)
        return self.key is not None and any(p is not None and same_origin(p, url) for p in places)


@dataclass(frozen=True, slots=True)
class Provider:
    """A public provider: its address and what its keys look like."""

    kind: EndpointKind
    base_url: str
    key_name: str
    key_prefix: str  # how its keys begin, where a bare key must be told apart
    example: str  # a model name, for the message that asks for one

    def server(self, key: SecretStr | None, why: str, environment: Mapping[str, str]) -> Server:
        """Its own server, or the one that its `..._BASE_URL` names instead."""
        setting = self.key_name.replace("API_KEY", "BASE_URL")
        named = _url(environment, setting) if setting in ENVIRONMENT_NAMES else None
        return Server(
            self.kind,
            named or self.base_url,
            key,
            why,
            self.key_name,
            setting if named else "PATCHSHOT_BASE_URL",
            offers_model=named is not None,
            example=self.example,
        )


# Base URLs: the providers' API references.
OPENROUTER = Provider(
    "openrouter",
    "https://openrouter.ai/api/v1",
    "OPENROUTER_API_KEY",
    "sk-or-",
    "anthropic/claude-sonnet-5.5",
)
ANTHROPIC = Provider(
    "anthropic",
    "https://api.anthropic.com/v1",
    "ANTHROPIC_API_KEY",
    "sk-ant-",
    "claude-sonnet-5-5",
)
OPENAI = Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "sk-", "gpt-5.4")
PROVIDERS = (OPENROUTER, ANTHROPIC, OPENAI)  # the shortest key prefix comes last


def first_server(environment: Mapping[str, str], kind: EndpointKind | None = None) -> Server | None:
    """The first server that is configured (and speaks `kind`); later ones are not looked at.

    Raises ConfigurationError when one of its variables is malformed.
    """
    return next((s for s in _servers(environment) if kind in (None, s.kind)), None)


def first_with_embeddings(
    environment: Mapping[str, str], kind: EndpointKind | None = None
) -> Server | None:
    """The first server that has embeddings at all (Anthropic has none), at its address for them."""
    for server in _servers(environment):
        if server.kind != "anthropic" and kind in (None, server.kind):
            return replace(server, base_url=server.embedding_base_url or server.base_url)
    return None


def key_owner(environment: Mapping[str, str], url: str) -> Server | None:
    """The server of the environment whose key belongs to the server at `url`, if one does."""
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


@dataclass(frozen=True, slots=True)
class _Source:
    """A way to name a server: the variables of which one is enough, and how they are read."""

    names: tuple[str, ...]
    read: Callable[[Mapping[str, str]], Server | None]


def _servers(environment: Mapping[str, str]) -> Iterator[Server]:
    for source in _SOURCES:
        found = source.read(environment)
        if found is not None:
            yield found


def _openrouter(environment: Mapping[str, str]) -> Server | None:
    key = _key(environment, OPENROUTER.key_name)
    if key is None:
        return None
    server = OPENROUTER.server(key, "OPENROUTER_API_KEY is set", environment)
    proxy = _url(environment, "SANDBOX_PROXY_URL")
    # With a bound on the cost the run is a miner's, and the bound picks from the catalogue.
    bounded = bool(_given(environment, ("RIDGES_MAX_COST_USD",)))
    return replace(server, usage_url=proxy and proxy + _SPENT_PATH, offers_model=bounded)


def _ridges(environment: Mapping[str, str]) -> Server | None:
    provider = environment.get("RIDGES_INFERENCE_PROVIDER", "").strip().lower()
    base_url = _url(environment, "RIDGES_INFERENCE_BASE_URL")
    if not provider and base_url is None:
        return None
    is_openrouter = provider == OPENROUTER.kind
    base_url = base_url or (OPENROUTER.base_url if is_openrouter else None)
    if base_url is None:
        raise ConfigurationError(
            f"RIDGES_INFERENCE_PROVIDER is {provider!r}, but its address is not known: set "
            "RIDGES_INFERENCE_BASE_URL"
        )
    return Server(
        "openrouter" if is_openrouter else "openai",
        base_url,
        _key(environment, "RIDGES_INFERENCE_API_KEY"),
        f"RIDGES_INFERENCE_{'PROVIDER' if provider else 'BASE_URL'} is set",
        "RIDGES_INFERENCE_API_KEY",
        "RIDGES_INFERENCE_BASE_URL",
        embedding_base_url=_url(environment, "RIDGES_INFERENCE_EMBEDDING_BASE_URL"),
        offers_model=not is_openrouter,
        example=OPENROUTER.example,
    )


def _sandbox_proxy(environment: Mapping[str, str]) -> Server | None:
    return _proxy(environment, "SANDBOX_PROXY_URL", None)


def _ai_proxy(environment: Mapping[str, str]) -> Server | None:
    return _proxy(environment, "AI_PROXY_URL", "AI_EMBEDDING_PROXY_URL")


def _proxy(environment: Mapping[str, str], name: str, embeddings: str | None) -> Server | None:
    base_url = _url(environment, name)
    if base_url is None:
        return None
    other = _url(environment, embeddings) if embeddings else None
    return Server(
        "miner", base_url, None, f"{name} is set", url_setting=name, embedding_base_url=other
    )


def _openai(environment: Mapping[str, str]) -> Server | None:
    key = _key(environment, OPENAI.key_name)
    if key is None and not _given(environment, ("OPENAI_BASE_URL",)):
        return None
    why = f"{OPENAI.key_name if key else 'OPENAI_BASE_URL'} is set"
    return OPENAI.server(key, why, environment)


def _anthropic(environment: Mapping[str, str]) -> Server | None:
    key = _key(environment, ANTHROPIC.key_name)
    if key is None:
        return None
    return ANTHROPIC.server(key, "ANTHROPIC_API_KEY is set", environment)


def _ollama(environment: Mapping[str, str]) -> Server | None:
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
    port = parts.port or (None if is_url else _OLLAMA_PORT)
    authority = f"[{host}]" if ":" in host else host
    base_url = f"{parts.scheme}://{authority}{f':{port}' if port else ''}{parts.path}"
    return Server("openai", base_url, None, "OLLAMA_HOST is set", url_setting="OLLAMA_HOST")


_SOURCES = (
    _Source(("OPENROUTER_API_KEY",), _openrouter),
    _Source(("RIDGES_INFERENCE_PROVIDER", "RIDGES_INFERENCE_BASE_URL"), _ridges),
    _Source(("SANDBOX_PROXY_URL",), _sandbox_proxy),
    _Source(("AI_PROXY_URL",), _ai_proxy),
    _Source(("OPENAI_API_KEY", "OPENAI_BASE_URL"), _openai),
    _Source(("ANTHROPIC_API_KEY",), _anthropic),
    _Source(("OLLAMA_HOST",), _ollama),
)

# All variables that are looked up, here and in `agent.llm.choice`.
ENVIRONMENT_NAMES = (
    *(name for source in _SOURCES for name in source.names),
    "RIDGES_INFERENCE_API_KEY",
    "RIDGES_INFERENCE_EMBEDDING_BASE_URL",
    "RIDGES_MAX_COST_USD",
    "AI_EMBEDDING_PROXY_URL",
    "ANTHROPIC_BASE_URL",
    "EVALUATION_RUN_ID",
    "RUN_ID",
)


def _given(environment: Mapping[str, str], names: tuple[str, ...]) -> list[str]:
    return [name for name in names if environment.get(name, "").strip()]


def _key(environment: Mapping[str, str], name: str) -> SecretStr | None:
    return clean_key(SecretStr(environment.get(name, "")), name)


def _url(environment: Mapping[str, str], name: str) -> str | None:
    given = environment.get(name, "").strip()
    return normalise_base_url(given, name) if given else None
