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


class TestKeys:
    @pytest.mark.parametrize(
        ("url", "key"),
        [
            ("https://llm.chutes.example/other", "cpk-1"),
            ("https://embed.chutes.example/v1", "cpk-1"),
            ("https://gateway.example/v2", "sk-openai"),
            ("http://gateway.example/v1", None),  # not encrypted: another server
            ("https://gateway.example:8443/v1", None),
            ("https://gateway.example.evil/v1", None),
            ("https://elsewhere.example/v1", None),
            (OPENAI, None),  # the key belongs to the gateway that OPENAI_BASE_URL names
        ],
    )
    def test_a_key_belongs_to_its_own_base_url(self, url: str, key: str | None) -> None:
        assert summary(choose_endpoint(settings(url), EVERYTHING)).split()[1] == (key or "-")

    def test_a_malformed_variable_of_a_server_that_is_not_asked_does_no_harm(self) -> None:
        broken = {
            "OPENROUTER_API_KEY": "sk-or-1",
            "OPENAI_API_KEY": "two words",
            "OLLAMA_HOST": ":",
        }

        assert choose_endpoint(settings(), broken).kind == "openrouter"
        assert choose_endpoint(settings("http://h/v1"), broken).api_key is None


class TestModels:
    @pytest.mark.parametrize(
        "environment",
        [
            {"SANDBOX_PROXY_URL": "http://p"},
            {"AI_PROXY_URL": "http://p"},
            {"OPENAI_BASE_URL": "http://box:1234"},
            {"OLLAMA_HOST": "box"},
            {"OPENROUTER_API_KEY": "sk-or-1", "RIDGES_MAX_COST_USD": "0.29"},
        ],
    )
    def test_the_servers_list_may_choose(self, environment: dict[str, str]) -> None:
        assert choose_endpoint(settings(model=" "), environment).model == ""

    @pytest.mark.parametrize(
        "environment",
        [{"OPENROUTER_API_KEY": "sk-or-1"}, {"OPENAI_API_KEY": "k"}, {"ANTHROPIC_API_KEY": "k"}],
    )
    def test_a_catalogue_may_not(self, environment: dict[str, str]) -> None:
        with pytest.raises(ConfigurationError, match="PATCHSHOT_MODEL, for example"):
            choose_endpoint(settings(model=None), environment)


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


class TestRunId:
    @pytest.mark.parametrize(
        ("environment", "expected"),
        [
            ({"EVALUATION_RUN_ID": "e", "RUN_ID": "r"}, "e"),
            ({"EVALUATION_RUN_ID": " ", "RUN_ID": " r "}, "r"),
            ({"RUN_ID": ""}, "nocache-1"),
            ({}, "nocache-1"),
        ],
    )
    def test_order(self, environment: dict[str, str], expected: str) -> None:
        environment |= {"SANDBOX_PROXY_URL": "http://p"}
        assert choose_endpoint(settings(), environment).run_id == expected

    def test_only_the_miners_proxy_is_told(self) -> None:
        environment = {"SANDBOX_PROXY_URL": "http://p", "RUN_ID": "r"}

        assert choose_endpoint(settings(), environment).run_id == "r"
        assert choose_endpoint(settings("http://h"), environment).run_id == ""


class TestEmbeddings:
    chat = choose_endpoint(settings("https://chat.example/v1", "chat-key"), {})

    def test_none_without_a_model(self) -> None:
        assert choose_embedding_endpoint(embedding(model=None), EVERYTHING, self.chat) is None

    def test_a_server_without_a_model_is_a_mistake(self) -> None:
        with pytest.raises(ConfigurationError, match="PATCHSHOT_EMBED_MODEL"):
            choose_embedding_endpoint(embedding("http://e.example", model=None), {}, self.chat)

    @pytest.mark.parametrize(
        ("chosen", "expected"),
        [
            (embedding(), "https://chat.example/v1 chat-key"),
            (embedding(key="own"), "https://chat.example/v1 own"),
            (embedding("https://chat.example/embed/v1"), "https://chat.example/embed/v1 chat-key"),
            (embedding("https://e.example/v1"), "https://e.example/v1 -"),
            (embedding("https://e.example/v1", "own"), "https://e.example/v1 own"),
            (embedding(OPENAI), f"{OPENAI} sk-openai"),
        ],
    )
    def test_server_and_key(self, chosen: Settings, expected: str) -> None:
        place = choose_embedding_endpoint(chosen, {"OPENAI_API_KEY": "sk-openai"}, self.chat)

        assert place is not None
        assert summary(place).startswith(f"{expected} ")
        assert place.model_setting == "PATCHSHOT_EMBED_MODEL"

    def test_anthropic_has_none_so_that_the_next_server_serves(self) -> None:
        keys = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "k"}
        chat = choose_endpoint(settings(protocol="anthropic"), keys)

        found = choose_embedding_endpoint(embedding(), keys, chat)

        assert found is not None
        assert summary(found).startswith(f"{OPENAI} k ")
        with pytest.raises(ConfigurationError, match="PATCHSHOT_EMBED_BASE_URL"):
            choose_embedding_endpoint(embedding(), {"ANTHROPIC_API_KEY": "a"}, chat)

    @pytest.mark.parametrize(
        ("environment", "place"),
        [
            ({"SANDBOX_PROXY_URL": "http://p"}, "http://p"),
            ({"AI_PROXY_URL": "http://p"}, "http://p"),
            ({"AI_PROXY_URL": "http://p", "AI_EMBEDDING_PROXY_URL": "http://e"}, "http://e"),
        ],
    )
    def test_a_miners_proxy_offers_them_without_a_model(
        self, environment: dict[str, str], place: str
    ) -> None:
        environment |= {"RUN_ID": "r"}
        chat = choose_endpoint(settings(model=None), environment)

        found = choose_embedding_endpoint(embedding(model=None), environment, chat)

        assert found is not None
        assert (found.base_url, found.kind, found.model, found.run_id) == (place, "miner", "", "r")

    def test_the_key_of_the_miners_kit_opens_both_of_its_servers(self) -> None:
        environment = {k: v for k, v in EVERYTHING.items() if k.startswith("RIDGES")}
        chat = choose_endpoint(settings(), environment)

        found = choose_embedding_endpoint(embedding(), environment, chat)

        assert found is not None
        assert summary(found).startswith("https://embed.chutes.example/v1 cpk-1 ")


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
