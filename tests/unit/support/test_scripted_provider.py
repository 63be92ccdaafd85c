"""The scripted server says over a real connection what its behaviours promise."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from tests.support.behaviours import (
    Behaviour,
    ChatRequest,
    DropConnection,
    EmptyCompletion,
    Good,
    HtmlError,
    Malformed,
    RateLimited,
    SchemaRefused,
    Slow,
    Truncated,
    Unauthorized,
    UnknownModel,
    WrongPath,
)
from tests.support.scripted_provider import EMBEDDING_DIMENSION, ScriptedProvider, embed_text


def chat(provider: ScriptedProvider, text: str = "hello", **extra: Any) -> httpx.Response:
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}], **extra}
    headers = {"Authorization": "Bearer test"}
    url = f"{provider.base_url}/chat/completions"
    return httpx.post(url, json=body, headers=headers, timeout=5, trust_env=False)


def reply_of(response: httpx.Response) -> tuple[str, str]:
    choice = response.json()["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (Good("fine"), ("fine", "stop")),
        (Truncated("abcdef"), ("abc", "length")),
        (EmptyCompletion(), ("", "stop")),
        (SchemaRefused(Good("plain")), ("plain", "stop")),
    ],
)
def test_completions(behaviour: Behaviour, expected: tuple[str, str]) -> None:
    with ScriptedProvider([behaviour]) as provider:
        response = chat(provider)
    assert (response.status_code, reply_of(response)) == (200, expected)


@pytest.mark.parametrize(
    ("behaviour", "status", "word"),
    [
        (RateLimited(3), 429, "Rate limit"),
        (HtmlError(), 502, "<html>"),
        (Unauthorized(), 401, "invalid_api_key"),
        (UnknownModel(), 404, "`scripted` does not exist"),
    ],
)
def test_refusals(behaviour: Behaviour, status: int, word: str) -> None:
    with ScriptedProvider([behaviour]) as provider:
        response = chat(provider)
    assert response.status_code == status
    assert word in response.text


def test_retry_after_is_a_header() -> None:
    with ScriptedProvider([RateLimited(3)]) as provider:
        assert chat(provider).headers["retry-after"] == "3"


def test_schema_is_refused_as_long_as_it_is_asked_for() -> None:
    with ScriptedProvider([SchemaRefused(Good("plain"))]) as provider:
        refused = chat(provider, response_format={"type": "json_object"})
        accepted = chat(provider)
    assert (refused.status_code, accepted.status_code) == (400, 200)
    assert "response_format" in refused.json()["error"]["message"]


def test_script_is_played_in_order_and_its_last_step_repeats() -> None:
    with ScriptedProvider([RateLimited(), DropConnection(), Good("last")]) as provider:
        assert chat(provider).status_code == 429
        with pytest.raises(httpx.RemoteProtocolError):
            chat(provider)
        assert [reply_of(chat(provider))[0] for _ in range(2)] == ["last", "last"]
        assert len(provider.chats) == 4


def test_reply_is_computed_from_the_prompt_and_the_request_is_recorded() -> None:
    def shout(request: ChatRequest) -> str:
        return request.prompt.upper()

    with ScriptedProvider([shout]) as provider:
        response = chat(provider, "make noise")
    assert reply_of(response)[0] == "MAKE NOISE"
    assert response.json()["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
    }
    assert provider.chats[0].headers["authorization"] == "Bearer test"


def test_slow_answers_late_and_does_not_hold_up_the_end() -> None:
    begin = time.monotonic()
    with ScriptedProvider([Slow(0.2, Good("late")), Slow(60, Good("never"))]) as provider:
        assert reply_of(chat(provider))[0] == "late"
        assert time.monotonic() - begin >= 0.2
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{provider.base_url}/chat/completions",
                json={"model": "m", "messages": []},
                timeout=0.2,
                trust_env=False,
            )
    assert time.monotonic() - begin < 10


def test_malformed_is_no_json_and_wrong_path_is() -> None:
    with ScriptedProvider([Malformed(), WrongPath("gone.py")]) as provider:
        malformed, wrong = reply_of(chat(provider))[0], reply_of(chat(provider))[0]
    with pytest.raises(json.JSONDecodeError):
        json.loads(malformed)
    assert json.loads(wrong)["edits"][0]["path"] == "gone.py"


def test_models_and_unknown_addresses() -> None:
    with ScriptedProvider([Malformed()], model="tiny") as provider:
        models = httpx.get(f"{provider.base_url}/models", trust_env=False).json()
        lost = httpx.get(f"{provider.base_url}/nothing", trust_env=False)
    assert [entry["id"] for entry in models["data"]] == ["tiny"]
    assert lost.status_code == 404
    assert [request.path for request in provider.requests] == ["/v1/models", "/v1/nothing"]


def test_embeddings_of_a_batch() -> None:
    texts = ["parse_header(line)", "def parseHeader", "banana"]
    with ScriptedProvider([Malformed()]) as provider:
        url = f"{provider.base_url}/embeddings"
        body = {"model": "m", "input": texts}
        rows = httpx.post(url, json=body, trust_env=False).json()["data"]
    assert [row["index"] for row in rows] == [0, 1, 2]
    first, second, third = (row["embedding"] for row in rows)
    assert first == embed_text(texts[0])
    assert dot(first, second) > 0.5 > abs(dot(first, third))


def test_text_without_words_has_a_vector_of_length_one() -> None:
    vector = embed_text("!!")
    assert len(vector) == EMBEDDING_DIMENSION
    assert dot(vector, vector) == 1.0


def dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
