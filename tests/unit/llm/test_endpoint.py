"""`agent.llm.endpoint`: which server is asked, with which key."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from agent.errors import ConfigurationError
from agent.llm.endpoint import (
    Endpoint,
    ProviderSettings,
    choose_embedding_endpoint,
    choose_endpoint,
    normalise_base_url,
    without_credentials,
)

ALL_KEYS = {
    "OPENROUTER_API_KEY": "sk-or-1",
    "OPENAI_API_KEY": "sk-openai",
    "OPENAI_BASE_URL": "https://gateway.example/v1/",
    "ANTHROPIC_API_KEY": "sk-ant-1",
}


def settings(
    base_url: str | None = None, key: str | None = None, model: str | None = "m"
) -> ProviderSettings:
    return ProviderSettings(base_url, SecretStr(key) if key else None, model)


def summary(endpoint: Endpoint) -> tuple[str, str | None, str, str]:
    key = endpoint.api_key.get_secret_value() if endpoint.api_key else None
    return endpoint.base_url, key, endpoint.kind, endpoint.why


@pytest.mark.parametrize(
    ("chosen", "environment", "expected"),
    [
        (
            settings("http://localhost:8080/", "k"),
            ALL_KEYS,
            ("http://localhost:8080", "k", "openai", "PATCHSHOT_BASE_URL is set"),
        ),
        (
            settings(),
            ALL_KEYS,
            ("https://openrouter.ai/api/v1", "sk-or-1", "openrouter", "OPENROUTER_API_KEY is set"),
        ),
        (
            settings(),
            {**ALL_KEYS, "OPENROUTER_API_KEY": " "},
            ("https://gateway.example/v1", "sk-openai", "openai", "OPENAI_API_KEY is set"),
        ),
        (
            settings(),
            {"OPENAI_API_KEY": "sk-openai\n"},
            ("https://api.openai.com/v1", "sk-openai", "openai", "OPENAI_API_KEY is set"),
        ),
        (
            settings(),
            {"OPENAI_BASE_URL": "http://box:1234"},
            ("http://box:1234", None, "openai", "OPENAI_BASE_URL is set"),
        ),
        (
            settings(),
            {"ANTHROPIC_API_KEY": "sk-ant-1"},
            ("https://api.anthropic.com/v1", "sk-ant-1", "anthropic", "ANTHROPIC_API_KEY is set"),
        ),
        (
            settings(key="sk-ant-2"),
            ALL_KEYS,
            ("https://api.anthropic.com/v1", "sk-ant-2", "anthropic", "PATCHSHOT_API_KEY is set"),
        ),
        (
            settings(key="sk-or-2"),
            {},
            ("https://openrouter.ai/api/v1", "sk-or-2", "openrouter", "PATCHSHOT_API_KEY is set"),
        ),
        (
            settings(key="other"),
            {},
            ("https://api.openai.com/v1", "other", "openai", "PATCHSHOT_API_KEY is set"),
        ),
    ],
)
def test_the_first_configured_server_is_chosen(
    chosen: ProviderSettings,
    environment: dict[str, str],
    expected: tuple[str, str | None, str, str],
) -> None:
    assert summary(choose_endpoint(chosen, environment)) == expected


def test_a_key_of_the_environment_never_goes_to_a_foreign_host() -> None:
    foreign = choose_endpoint(settings("https://elsewhere.example/v1"), ALL_KEYS)
    own = choose_endpoint(settings("https://openrouter.ai/api/v1"), ALL_KEYS)

    assert foreign.api_key is None
    assert foreign.key_setting == "PATCHSHOT_API_KEY"
    assert own.api_key == SecretStr("sk-or-1")
    assert own.key_setting == "OPENROUTER_API_KEY"


def test_the_key_prints_nowhere() -> None:
    endpoint = choose_endpoint(settings(), {"OPENAI_API_KEY": "sk-very-secret"})

    assert "very-secret" not in repr(endpoint) + str(endpoint)


@pytest.mark.parametrize(
    ("chosen", "environment", "words"),
    [
        (settings(), {}, ["PATCHSHOT_BASE_URL", "PATCHSHOT_MODEL", "OPENROUTER_API_KEY"]),
        (settings(model=None), ALL_KEYS, ["PATCHSHOT_MODEL", "for example anthropic/"]),
        (settings("localhost:8080"), {}, ["PATCHSHOT_BASE_URL", "http://localhost:8080"]),
        (settings("ftp://host/v1"), {}, ["PATCHSHOT_BASE_URL", "http(s)"]),
        (settings("http://host:port/v1"), {}, ["PATCHSHOT_BASE_URL"]),
        (settings("https://host/v1?api-version=3"), {}, ["PATCHSHOT_BASE_URL", "query"]),
        (settings(key="naïve"), {}, ["PATCHSHOT_API_KEY", "copy the key again"]),
        (settings(), {"OPENAI_API_KEY": "two words"}, ["OPENAI_API_KEY"]),
    ],
)
def test_what_is_missing_or_malformed_is_named(
    chosen: ProviderSettings, environment: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        choose_endpoint(chosen, environment)

    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://host/v1/", "https://host/v1"),
        (" https://host/v1\n", "https://host/v1"),
        ("https://host/v1/chat/completions", "https://host/v1"),
        ("https://host/v1/embeddings/", "https://host/v1"),
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434"),
    ],
)
def test_base_urls_are_normalised(given: str, expected: str) -> None:
    assert normalise_base_url(given, "X") == expected


def test_credentials_of_a_url_are_not_shown() -> None:
    assert without_credentials("https://me:secret@host:1/v1") == "https://host:1/v1"
    with pytest.raises(ConfigurationError) as caught:
        normalise_base_url("ftp://me:secret@host/v1", "X")
    assert "secret" not in str(caught.value)


class TestEmbeddings:
    chat = choose_endpoint(settings("https://chat.example/v1", "chat-key"), {})

    def test_none_without_a_model(self) -> None:
        assert choose_embedding_endpoint(settings(model=None), ALL_KEYS, self.chat) is None

    def test_a_server_without_a_model_is_a_mistake(self) -> None:
        with pytest.raises(ConfigurationError, match="PATCHSHOT_EMBED_MODEL"):
            choose_embedding_endpoint(settings("http://e.example", model=None), {}, self.chat)

    @pytest.mark.parametrize(
        ("chosen", "expected"),
        [
            (settings(), ("https://chat.example/v1", "chat-key")),
            (settings(key="own"), ("https://chat.example/v1", "own")),
            (
                settings("https://chat.example/embed/v1"),
                ("https://chat.example/embed/v1", "chat-key"),
            ),
            (settings("https://e.example/v1"), ("https://e.example/v1", None)),
            (settings("https://e.example/v1", "own"), ("https://e.example/v1", "own")),
            (settings("https://api.openai.com/v1"), ("https://api.openai.com/v1", "sk-openai")),
        ],
    )
    def test_server_and_key(
        self, chosen: ProviderSettings, expected: tuple[str, str | None]
    ) -> None:
        found = choose_embedding_endpoint(chosen, ALL_KEYS, self.chat)

        assert found is not None
        assert summary(found)[:2] == expected
        assert found.model_setting == "PATCHSHOT_EMBED_MODEL"

    def test_without_a_chat_server_the_environment_decides(self) -> None:
        found = choose_embedding_endpoint(settings(), {"OPENAI_API_KEY": "k"})

        assert found is not None
        assert summary(found)[:2] == ("https://api.openai.com/v1", "k")
        with pytest.raises(ConfigurationError, match="PATCHSHOT_EMBED_BASE_URL"):
            choose_embedding_endpoint(settings(), {})
