"""`agent.llm.failures`: what servers really say, and what it means."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import (
    AuthenticationFailed,
    ContextTooLong,
    ProviderError,
    ProviderUnreachable,
    UnknownModel,
)
from agent.llm.failures import (
    Failure,
    RawReply,
    one_line,
    read_context_limit,
    read_failure,
    retry_after,
)
from agent.llm.redaction import redact
from tests.support.llm import KEY, endpoint

WORDINGS = {
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9,001 "
    "tokens. Please reduce the length of the messages.": (8192, 9001),
    "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens (4000 "
    "in the messages, 1000 in the completion).": (4097, 4000),
    "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 "
    "tokens (36000 of text input, 4000 in the output).": (32768, 36000),
    "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context "
    "length is 8192 tokens and your request has 1000 input tokens (8192 > 8192 - 1000).": (
        8192,
        1000,
    ),
    "prompt is too long: 201000 tokens > 200000 maximum": (200000, 201000),
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input "
    "length or `max_tokens` and try again": (200000, 190000),
    "request (3031 tokens) exceeds the available context size (1024 tokens), try increasing it": (
        1024,
        3031,
    ),
    "Please reduce the length of the messages or completion.": (None, None),
    "": (None, None),
}


@pytest.mark.parametrize(("wording", "told"), WORDINGS.items())
def test_wordings(wording: str, told: tuple[int | None, int | None]) -> None:
    assert read_context_limit(wording) == told


NOW = datetime(2026, 1, 1, tzinfo=UTC)
HTML_502 = "<html>\r\n<head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def failure(status: int, body: object, headers: dict[str, str] | None = None) -> Failure:
    raw = body if isinstance(body, str) else json.dumps(body)
    return read_failure(RawReply(status, headers or {}, raw.encode()), endpoint(), NOW)


def said(message: str, code: str | None = None, kind: str = "x") -> object:
    return {"error": {"message": message, "type": kind, "code": code}}


LONG = "This model's maximum context length is 4096 tokens."
CASES = [
    (401, said("Incorrect API key provided: sk-abc123456"), AuthenticationFailed, False),
    (401, said("invalid x-api-key", kind="authentication_error"), AuthenticationFailed, False),
    (403, said("Model not allowed"), AuthenticationFailed, False),
    (400, {"detail": "Invalid API key"}, AuthenticationFailed, False),
    (402, said("Insufficient credits"), ProviderError, False),
    (400, said("Your credit balance is too low to access it"), ProviderError, False),
    (429, said("You exceeded your current quota", "insufficient_quota"), ProviderError, False),
    (429, said("Rate limit reached"), ProviderUnreachable, True),
    (429, said("Request too large for gpt-4 on tokens per min"), ContextTooLong, False),
    (404, said("The model `x` does not exist", "model_not_found"), UnknownModel, False),
    (404, said("model: claude-x", kind="not_found_error"), UnknownModel, False),
    (404, {"error": 'model "x" not found, try pulling it first'}, UnknownModel, False),
    (404, said("test-model is gone"), UnknownModel, False),
    (400, said("x is not a valid model ID"), UnknownModel, False),
    (404, {"detail": "Not Found"}, ProviderError, False),
    (404, "404 page not found", ProviderError, False),
    (405, {"detail": "Method Not Allowed"}, ProviderError, False),
    (400, said("too long", "context_length_exceeded"), ContextTooLong, False),
    (400, {"message": LONG, "object": "error"}, ContextTooLong, False),
    (400, said("the request exceeds the available context size"), ContextTooLong, False),
    (400, said("prompt is too long: 250000 tokens > 200000 maximum"), ContextTooLong, False),
    (413, "<html><title>413 Request Entity Too Large</title></html>", ContextTooLong, False),
    (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, ProviderError, False),
    (408, "", ProviderUnreachable, True),
    (409, "", ProviderUnreachable, True),
    (425, "", ProviderUnreachable, True),
    (500, {"error": "oops"}, ProviderUnreachable, True),
    (502, HTML_502, ProviderUnreachable, True),
    (529, said("Overloaded", kind="overloaded_error"), ProviderUnreachable, True),
    (501, "", ProviderError, False),
    (407, "", ProviderError, False),
    (418, "", ProviderError, False),
]


@pytest.mark.parametrize(("status", "body", "kind", "retriable"), CASES)
def test_each_refusal_has_its_error(
    status: int, body: object, kind: type[ProviderError], retriable: bool
) -> None:
    seen = failure(status, body)

    assert (type(seen.error), seen.retriable, seen.status) == (kind, retriable, status)
    assert ": " in str(seen.error)
    assert "\n" not in str(seen.error)
    assert "<" not in str(seen.error)


def test_the_message_names_what_to_change() -> None:
    assert "check PATCHSHOT_API_KEY" in str(failure(401, "").error)
    keyless = read_failure(RawReply(401, {}, b""), endpoint(key=None), NOW)
    assert "wants one (401): check PATCHSHOT_API_KEY" in str(keyless.error)
    assert "502 Bad Gateway" in str(failure(502, HTML_502).error)
    moved = failure(301, "", {"location": "https://me:pw@new.example/v1"})
    assert "redirects to https://new.example/v1)" in str(moved.error)


def test_keys_are_never_quoted() -> None:
    seen = failure(401, said(f"bad key {KEY} and Bearer abc.def and sk-proj-ABCDEFGH"))

    for secret in (KEY, "abc.def", "ABCDEFGH"):
        assert secret not in str(seen.error) + seen.wording + repr(seen)


@given(st.text())
def test_one_line_is_printable_whatever_comes(text: str) -> None:
    line = one_line(redact(text))

    assert line.isprintable()
    assert len(line) <= 300


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["error", "message", "code", "detail", "x"]), inner, max_size=3
            )
        ),
    )
)
def test_any_error_body_is_read(body: object) -> None:
    assert isinstance(failure(400, body).error, ProviderError)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:30 GMT"}, 30.0),
        ({"retry-after": "Wed, 31 Dec 2025 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:30"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers, NOW) == expected
