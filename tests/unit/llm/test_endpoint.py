"""`agent.llm.endpoint`: URLs and keys made fit to use and to print."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from agent.errors import ConfigurationError
from agent.llm import Endpoint, without_credentials
from agent.llm.endpoint import clean_key, normalise_base_url, same_origin


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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://host/v1", "https://host/embed", True),
        ("https://host/v1", "http://host/v1", False),
        ("https://host/v1", "https://host:8443/v1", False),
        ("https://host/v1", "https://host.evil/v1", False),
    ],
)
def test_origins(one: str, other: str, same: bool) -> None:
    assert same_origin(one, other) is same


def test_keys_are_cleaned_or_refused() -> None:
    assert clean_key(SecretStr(" sk-1\n"), "X") == SecretStr("sk-1")
    assert clean_key(SecretStr(" "), "X") is None
    assert clean_key(None, "X") is None
    for broken in ("naïve", "two words", "a\x00b"):
        with pytest.raises(ConfigurationError, match="X has characters"):
            clean_key(SecretStr(broken), "X")


def test_the_key_prints_nowhere() -> None:
    endpoint = Endpoint("https://h", SecretStr("sk-very-secret"), "m", "openai", "a test")

    assert "very-secret" not in repr(endpoint) + str(endpoint)
