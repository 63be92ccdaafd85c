"""`agent.llm.choice` and `.endpoint`: which server is asked, with which key, for which run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from agent.errors import ConfigurationError
from agent.llm import (
    ENVIRONMENT_NAMES,
    Endpoint,
    choose_embedding_endpoint,
    choose_endpoint,
    without_credentials,
)
from agent.llm.endpoint import normalise_base_url, same_origin
from agent.settings import Settings

OPENROUTER = "https://openrouter.ai/api/v1"
OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com/v1"

# Everything at once, in the order in which it is taken.
EVERYTHING = {
    "OPENROUTER_API_KEY": "sk-or-1",
    "RIDGES_INFERENCE_PROVIDER": "chutes",
    "RIDGES_INFERENCE_API_KEY": "cpk-1",
    "RIDGES_INFERENCE_BASE_URL": "https://llm.chutes.example/v1",
    "RIDGES_INFERENCE_EMBEDDING_BASE_URL": "https://embed.chutes.example/v1",
    "SANDBOX_PROXY_URL": "http://sandbox-proxy:80",
    "AI_PROXY_URL": "http://ai-proxy",
    "AI_EMBEDDING_PROXY_URL": "http://ai-embedding-proxy",
    "OPENAI_API_KEY": "sk-openai",
    "OPENAI_BASE_URL": "https://gateway.example/v1/",
    "ANTHROPIC_API_KEY": "sk-ant-1",
    "OLLAMA_HOST": "box",
}


def without(*names: str) -> dict[str, str]:
    """Everything but these, and what belongs to them."""
    return {k: v for k, v in EVERYTHING.items() if not k.startswith(names)}


def settings(
    base_url: str | None = None,
    key: str | None = None,
    model: str | None = "m",
    protocol: str | None = None,
) -> Settings:
    secret = SecretStr(key) if key else None
    return Settings(base_url=base_url, api_key=secret, model=model, protocol=protocol or "auto")


def embedding(
    base_url: str | None = None, key: str | None = None, model: str | None = "m"
) -> Settings:
    secret = SecretStr(key) if key else None
    return Settings(embed_base_url=base_url, embed_api_key=secret, embed_model=model)


def summary(endpoint: Endpoint) -> str:
    """Address, key, protocol, and the variable that chose it."""
    key = endpoint.api_key.get_secret_value() if endpoint.api_key else "-"
    return f"{endpoint.base_url} {key} {endpoint.kind} {endpoint.why.removesuffix(' is set')}"


KIT = {"RIDGES_INFERENCE_PROVIDER": "openrouter", "RIDGES_INFERENCE_API_KEY": "sk-or-2"}
CLAUDE = {"ANTHROPIC_API_KEY": "sk-ant-1"}
GATEWAY = {**CLAUDE, "ANTHROPIC_BASE_URL": "https://gw.example"}
LOCAL = "http://localhost:8080"


@pytest.mark.parametrize(
    ("chosen", "environment", "expected"),
    [
        (settings(f"{LOCAL}/", "k"), EVERYTHING, f"{LOCAL} k openai PATCHSHOT_BASE_URL"),
        (settings(), EVERYTHING, f"{OPENROUTER} sk-or-1 openrouter OPENROUTER_API_KEY"),
        (
            settings(),
            {**EVERYTHING, "OPENROUTER_API_KEY": " "},
            "https://llm.chutes.example/v1 cpk-1 openai RIDGES_INFERENCE_PROVIDER",
        ),
        (settings(), KIT, f"{OPENROUTER} sk-or-2 openrouter RIDGES_INFERENCE_PROVIDER"),
        (
            settings(),
            without("OPENROUTER", "RIDGES"),
            "http://sandbox-proxy:80 - miner SANDBOX_PROXY_URL",
        ),
        (
            settings(),
            without("OPENROUTER", "RIDGES", "SANDBOX"),
            "http://ai-proxy - miner AI_PROXY_URL",
        ),
        (
            settings(),
            without("OPENROUTER", "RIDGES", "SANDBOX", "AI_"),
            "https://gateway.example/v1 sk-openai openai OPENAI_API_KEY",
        ),
        (settings(), {"OPENAI_API_KEY": "sk-1\n"}, f"{OPENAI} sk-1 openai OPENAI_API_KEY"),
        (settings(), {"OPENAI_BASE_URL": LOCAL}, f"{LOCAL} - openai OPENAI_BASE_URL"),
        (
            settings(),
            {**CLAUDE, "OLLAMA_HOST": "box"},
            f"{ANTHROPIC} sk-ant-1 anthropic ANTHROPIC_API_KEY",
        ),
        (settings(), GATEWAY, "https://gw.example sk-ant-1 anthropic ANTHROPIC_API_KEY"),
        (settings(), {"OLLAMA_HOST": "box"}, "http://box:11434 - openai OLLAMA_HOST"),
        (settings(), {"OLLAMA_HOST": "0.0.0.0:9"}, "http://127.0.0.1:9 - openai OLLAMA_HOST"),
        (settings(), {"OLLAMA_HOST": "https://o.x"}, "https://o.x - openai OLLAMA_HOST"),
        (settings(key="sk-ant-2"), EVERYTHING, f"{ANTHROPIC} sk-ant-2 anthropic PATCHSHOT_API_KEY"),
        (settings(key="sk-or-2"), {}, f"{OPENROUTER} sk-or-2 openrouter PATCHSHOT_API_KEY"),
        (settings(key="sk-other"), {}, f"{OPENAI} sk-other openai PATCHSHOT_API_KEY"),
        (
            settings(protocol="anthropic"),
            EVERYTHING,
            f"{ANTHROPIC} sk-ant-1 anthropic ANTHROPIC_API_KEY",
        ),
    ],
)
def test_the_first_configured_server_is_chosen(
    chosen: Settings, environment: dict[str, str], expected: str
) -> None:
    assert summary(choose_endpoint(chosen, environment)) == expected


def test_all_variables_that_are_read_are_listed() -> None:
    assert set(EVERYTHING) < set(ENVIRONMENT_NAMES)
    assert len(ENVIRONMENT_NAMES) == len(set(ENVIRONMENT_NAMES))


@pytest.mark.parametrize(
    ("url", "protocol", "kind"),
    [
        ("https://api.anthropic.com/v1", None, "anthropic"),
        (f"{OPENROUTER}/chat/completions", None, "openrouter"),
        ("https://api.deepseek.example/anthropic", None, "anthropic"),
        ("https://gw.example/v1/messages", None, "anthropic"),
        ("http://proxy/api/inference", None, "miner"),
        ("https://anthropic.example/v1", None, "openai"),
        ("https://anything.example", "miner", "miner"),
    ],
)
def test_the_protocol_is_told_from_the_address_or_set(url: str, protocol: Any, kind: str) -> None:
    assert choose_endpoint(settings(url, protocol=protocol), {}).kind == kind


@pytest.mark.parametrize(
    ("url", "key"),
    [
        (f"{OPENROUTER}/", "sk-or-1 OPENROUTER_API_KEY"),
        ("https://llm.chutes.example/other", "cpk-1 RIDGES_INFERENCE_API_KEY"),
        ("https://embed.chutes.example/v1", "cpk-1 RIDGES_INFERENCE_API_KEY"),
        ("https://gateway.example/v2", "sk-openai OPENAI_API_KEY"),
        ("http://gateway.example/v1", None),  # not encrypted: another server
        ("https://gateway.example:8443/v1", None),
        ("https://gateway.example.evil/v1", None),
        ("https://elsewhere.example/v1", None),
        (OPENAI, None),  # the key belongs to the gateway that OPENAI_BASE_URL names
    ],
)
def test_a_key_goes_to_its_own_server_only(url: str, key: str | None) -> None:
    place = choose_endpoint(settings(url), EVERYTHING)
    expected = key or "- PATCHSHOT_API_KEY"
    assert f"{summary(place).split()[1]} {place.key_setting}" == expected


def test_a_malformed_variable_of_a_server_that_is_not_asked_does_no_harm() -> None:
    broken = {"OPENROUTER_API_KEY": "sk-or-1", "OPENAI_API_KEY": "two words", "OLLAMA_HOST": ":"}
    assert choose_endpoint(settings(), broken).kind == "openrouter"
    assert choose_endpoint(settings("http://h/v1"), broken).api_key is None


MINER_KEY = {"OPENROUTER_API_KEY": "sk-or-1", "RIDGES_MAX_COST_USD": "0.29"}


@pytest.mark.parametrize("name", ["SANDBOX_PROXY_URL", "AI_PROXY_URL", "OPENAI_BASE_URL", None])
def test_the_servers_list_may_choose_the_model(name: str | None) -> None:
    environment = {name: "http://p"} if name else MINER_KEY
    assert choose_endpoint(settings(model=" "), environment).model == ""


@pytest.mark.parametrize("name", ["OPENROUTER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"])
def test_a_catalogue_may_not_choose_the_model(name: str) -> None:
    with pytest.raises(ConfigurationError, match="PATCHSHOT_MODEL, for example"):
        choose_endpoint(settings(model=None), {name: "k"})


@pytest.mark.parametrize(
    ("chosen", "environment", "words"),
    [
        (settings(), {}, ["PATCHSHOT_BASE_URL", "PATCHSHOT_MODEL", "OPENROUTER_API_KEY"]),
        (settings("localhost:8080"), {}, ["PATCHSHOT_BASE_URL", "http://localhost:8080"]),
        (settings(key="other"), {}, ["PATCHSHOT_API_KEY", "PATCHSHOT_BASE_URL"]),
        (settings(key="naïve"), {}, ["PATCHSHOT_API_KEY", "copy the key again"]),
        (settings(), {"OPENAI_API_KEY": "two words"}, ["OPENAI_API_KEY"]),
        (settings(), {"SANDBOX_PROXY_URL": "sandbox-proxy"}, ["SANDBOX_PROXY_URL"]),
        (settings(), {"RIDGES_INFERENCE_PROVIDER": "targon"}, ["RIDGES_INFERENCE_BASE_URL"]),
    ],
)
def test_what_is_missing_or_malformed_is_named(
    chosen: Settings, environment: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        choose_endpoint(chosen, environment)

    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("base_url", "ids", "expected"),
    [
        (None, {"EVALUATION_RUN_ID": "e", "RUN_ID": "r"}, "e"),
        (None, {"EVALUATION_RUN_ID": " ", "RUN_ID": " r "}, "r"),
        (None, {"RUN_ID": ""}, "nocache-1"),
        ("http://h", {"RUN_ID": "r"}, ""),  # only the miners' proxy is told
    ],
)
def test_run_ids(base_url: str | None, ids: dict[str, str], expected: str) -> None:
    environment = {"SANDBOX_PROXY_URL": "http://p", **ids}
    assert choose_endpoint(settings(base_url), environment).run_id == expected


CHAT = choose_endpoint(settings("https://chat.example/v1", "chat-key"), {})
CLAUDE_CHAT = choose_endpoint(settings(protocol="anthropic"), {"ANTHROPIC_API_KEY": "a"})
RIDGES = {k: v for k, v in EVERYTHING.items() if k.startswith("RIDGES")}
OPENAI_KEY = {"OPENAI_API_KEY": "sk-openai"}


@pytest.mark.parametrize(
    ("chosen", "environment", "chat", "expected"),
    [
        (embedding(), OPENAI_KEY, CHAT, "https://chat.example/v1 chat-key"),
        (embedding(key="own"), {}, CHAT, "https://chat.example/v1 own"),
        (embedding("https://chat.example/v2"), {}, CHAT, "https://chat.example/v2 chat-key"),
        (embedding("https://e.example/v1"), OPENAI_KEY, CHAT, "https://e.example/v1 -"),
        (embedding("https://e.example/v1", "own"), {}, CHAT, "https://e.example/v1 own"),
        (embedding(OPENAI), OPENAI_KEY, CHAT, f"{OPENAI} sk-openai"),
        (embedding(), OPENAI_KEY, None, f"{OPENAI} sk-openai"),
        (embedding(), OPENAI_KEY, CLAUDE_CHAT, f"{OPENAI} sk-openai"),  # Anthropic has none
        (
            embedding(),
            RIDGES,
            choose_endpoint(settings(), RIDGES),
            "https://embed.chutes.example/v1 cpk-1",
        ),
    ],
)
def test_server_and_key_of_embeddings(
    chosen: Settings, environment: dict[str, str], chat: Endpoint | None, expected: str
) -> None:
    place = choose_embedding_endpoint(chosen, environment, chat)
    assert place is not None
    assert summary(place).startswith(f"{expected} ")
    assert place.model_setting == "PATCHSHOT_EMBED_MODEL"


@pytest.mark.parametrize(
    ("chosen", "chat", "missing"),
    [
        (embedding("http://e.example", model=None), CHAT, "PATCHSHOT_EMBED_MODEL"),
        (embedding(), None, "PATCHSHOT_EMBED_BASE_URL"),
        (embedding(), CLAUDE_CHAT, "PATCHSHOT_EMBED_BASE_URL"),
    ],
)
def test_what_embeddings_lack_is_named(
    chosen: Settings, chat: Endpoint | None, missing: str
) -> None:
    with pytest.raises(ConfigurationError, match=missing):
        choose_embedding_endpoint(chosen, CLAUDE, chat)


def test_there_are_no_embeddings_without_a_model() -> None:
    assert choose_embedding_endpoint(embedding(model=None), EVERYTHING, CHAT) is None


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"SANDBOX_PROXY_URL": "http://p"}, "http://p"),
        ({"AI_PROXY_URL": "http://p"}, "http://p"),
        ({"AI_PROXY_URL": "http://p", "AI_EMBEDDING_PROXY_URL": "http://e"}, "http://e"),
    ],
)
def test_a_miners_proxy_offers_embeddings_without_a_model(
    environment: dict[str, str], place: str
) -> None:
    environment |= {"RUN_ID": "r"}
    chat = choose_endpoint(settings(model=None), environment)
    found = choose_embedding_endpoint(embedding(model=None), environment, chat)
    assert found is not None
    assert (found.base_url, found.kind, found.model, found.run_id) == (place, "miner", "", "r")


def owners(environment: Mapping[str, str]) -> dict[str, set[str]]:
    """Where each key of the environment may go."""
    return {
        "sk-or-1": {OPENROUTER},
        "cpk-1": {
            environment.get("RIDGES_INFERENCE_BASE_URL", ""),
            environment.get("RIDGES_INFERENCE_EMBEDDING_BASE_URL", ""),
        },
        "sk-openai": {environment.get("OPENAI_BASE_URL", OPENAI)},
        "sk-ant-1": {environment.get("ANTHROPIC_BASE_URL", ANTHROPIC)},
    }


_PLACES = [
    None,
    OPENROUTER,
    OPENAI,
    ANTHROPIC,
    "https://foreign.example/v1",
    *(value for value in EVERYTHING.values() if "://" in value),
]


@given(
    st.sets(st.sampled_from([*EVERYTHING, "ANTHROPIC_BASE_URL"])),
    st.sampled_from(_PLACES),
    st.sampled_from(_PLACES),
    st.sampled_from([None, "openai", "openrouter", "anthropic", "miner"]),
)
def test_no_key_ever_leaves_its_host(
    names: set[str], chat_url: str | None, embed_url: str | None, protocol: Any
) -> None:
    values = {**EVERYTHING, "ANTHROPIC_BASE_URL": "https://claude.example"}
    environment = {name: values[name] for name in sorted(names)}
    chat = None
    found: list[Endpoint | None] = []
    with contextlib.suppress(ConfigurationError):
        chat = choose_endpoint(settings(chat_url, protocol=protocol), environment)
        found.append(chat)
    with contextlib.suppress(ConfigurationError):
        found.append(choose_embedding_endpoint(embedding(embed_url), environment, chat))

    for endpoint in found:
        if endpoint is not None and endpoint.api_key is not None:
            allowed = owners(environment)[endpoint.api_key.get_secret_value()]
            assert any(place and same_origin(place, endpoint.base_url) for place in allowed)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://host/v1/", "https://host/v1"),
        (" https://host/v1\n", "https://host/v1"),
        ("https://host/v1/chat/completions", "https://host/v1"),
        ("https://host/v1/embeddings/", "https://host/v1"),
        ("https://host/v1/messages", "https://host/v1"),
        ("http://proxy/api/inference", "http://proxy"),
        ("http://proxy/agents/embedding", "http://proxy"),
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("http://embeddings", "http://embeddings"),
    ],
)
def test_base_urls_are_normalised(given: str, expected: str) -> None:
    assert normalise_base_url(given, "X") == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("localhost:8080", ["X", "http://localhost:8080"]),
        ("ftp://host/v1", ["X", "http(s)"]),
        ("http://host:port/v1", ["X"]),
        ("https://host/v1?api-version=3", ["X", "query"]),
        ("http://me:pw@127.0.0.1:8080/v1?a=3", ["what follows http://127.0.0.1:8080/v1"]),
    ],
)
def test_what_is_no_base_url_is_named(given: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        normalise_base_url(given, "X")
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


def test_credentials_of_a_url_are_not_shown() -> None:
    assert without_credentials("https://me:secret@host:1/v1") == "https://host:1/v1"
    with pytest.raises(ConfigurationError) as caught:
        normalise_base_url("ftp://me:secret@host/v1", "X")
    assert "secret" not in str(caught.value)


def test_the_key_prints_nowhere() -> None:
    endpoint = Endpoint("https://h", SecretStr("sk-very-secret"), "m", "openai", "a test")

    assert "very-secret" not in repr(endpoint) + str(endpoint)
