"""Keys never come out of a text, whole or in part; other texts stay as they are."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.llm import Redactor
from agent.llm.redaction import MASK, PART, SHORTEST_SECRET

KEY_SIGNS = string.ascii_letters + string.digits + "-_.:/+="
SECRETS = st.text(KEY_SIGNS, min_size=SHORTEST_SECRET, max_size=80)
TEXTS = st.text(max_size=60)


def parts(secret: str) -> set[str]:
    """Every run of characters that must not be seen."""
    width = min(len(secret), PART)
    return {secret[start : start + width] for start in range(len(secret) - width + 1)}


@given(SECRETS, TEXTS, TEXTS)
@example("sk-abcdefghijkl", "key sk-abcdefghijklsk-abcdefghijkl", "")
def test_no_part_of_a_configured_secret_comes_out(secret: str, before: str, after: str) -> None:
    redacted = Redactor([secret])(f"{before}{secret}{after}")
    assert not any(part in redacted for part in parts(secret))
    assert MASK in redacted


@given(SECRETS.filter(lambda secret: len(secret) > PART), st.data(), TEXTS)
def test_a_secret_that_was_cut_does_not_come_out_either(
    secret: str, data: st.DataObject, around: str
) -> None:
    start = data.draw(st.integers(0, len(secret) - PART))
    end = data.draw(st.integers(start + PART, len(secret)))
    redacted = Redactor([secret])(f"{around}{secret[start:end]}…")
    assert not any(part in redacted for part in parts(secret))


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("Authorization: Bearer abc123def", "Authorization: ", "abc123def"),
        ('{"authorization": "Bearer abc123def", "n": 1}', '"n": 1', "abc123def"),
        ("x-api-key: abc123def, next", "x-api-key: ", "abc123def"),
        ("{'x-api-key': 'abc123def'}", "x-api-key", "abc123def"),
        ("GET /v1?key=abc123def&model=m", "&model=m", "abc123def"),
        ("GET /v1?model=m&access_token=abc123def done", "model=m", "abc123def"),
        ("https://user:abc123def@proxy:8080/x", "@proxy:8080/x", "abc123def"),
        ("wrong key sk-proj-abc123def456ghi!", "wrong key", "abc123def456ghi"),
        ("sent Bearer abc123def to it", "to it", "abc123def"),
    ],
)
def test_what_looks_like_a_key_goes(text: str, kept: str, gone: str) -> None:
    redacted = Redactor()(text)
    assert gone not in redacted
    assert kept in redacted
    assert MASK in redacted


@pytest.mark.parametrize(
    "text",
    [
        "call: 5,012 tokens in, 310 out, $0.0123 [4.10 s]",
        "retrieve: 412 files, 5,130 chunks",
        "https://llm.example/v1 has no model 'gpt-5' (404: no such model)",
        "agent: usage: PATCHSHOT_API_KEY is not set",
        "path/to/module.py:12: token = next(tokens)",
        "",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert Redactor(["sk-some-configured-key", "test", "none"])(text) == text


def test_placeholders_do_not_mask_words() -> None:
    assert Redactor(["test", "ollama"])("testing ollama before") == "testing ollama before"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("you sent Basic bWU6cHc=", "you sent Basic ***"),
        ("you sent basic bWU6c2VjcmV0, which is wrong", "you sent basic ***, which is wrong"),
        ("basic authentication is needed", "basic authentication is needed"),
        ('Basic realm="x", charset="UTF-8"', 'Basic realm="x", charset="UTF-8"'),
    ],
)
def test_user_and_password_of_a_url_as_their_header_carries_them(text: str, shown: str) -> None:
    assert Redactor()(text) == shown


def test_what_only_looks_like_a_key_stays_where_the_known_are_masked() -> None:
    redactor = Redactor(["my-own-key-1"])
    assert redactor.known("sk-abcdefghijklmn my-own-key-1 Bearer xyz123") == (
        f"sk-abcdefghijklmn {MASK} Bearer xyz123"
    )
    assert Redactor().known("a") == "a"
