"""`agent.llm.protocols.anthropic`: the Messages API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ContextTooLong, ProviderError
from agent.llm.failures import Failure
from agent.llm.protocols.anthropic import ANTHROPIC, AnthropicChat, breakpoints
from agent.llm.protocols.base import ChatCall
from agent.llm.replies import ReadReply
from agent.patching.schema import reply_schema
from agent.types import Message
from tests.support.llm import endpoint

MARK = {"type": "ephemeral"}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
CALL = ChatCall("claude-x", (Message("system", "s"), Message("user", "u")), 100, 0.5)
DIALOGUE = (
    Message("system", "s"),
    Message("user", "issue and context"),
    Message("assistant", "reply"),
    Message("user", "why not"),
)


def refusal(wording: str, status: int = 400) -> Failure:
    return Failure(ProviderError("refused: no"), status=status, wording=wording)


def test_a_request() -> None:
    assert AnthropicChat(caching=False).body(CALL) == {
        "model": "claude-x",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "u"}]}],
        "system": [{"type": "text", "text": "s"}],
        "temperature": 0.5,
    }


def test_a_request_without_a_system_text_has_no_such_field() -> None:
    assert "system" not in AnthropicChat().body(replace(CALL, messages=(Message("user", "u"),)))


def test_a_temperature_above_the_apis_own_is_lowered() -> None:
    assert AnthropicChat().body(replace(CALL, temperature=1.8))["temperature"] == 1.0


def test_the_key_has_a_header_of_its_own() -> None:
    headers = ANTHROPIC.headers(endpoint(key="k"))

    assert headers == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    assert "x-api-key" not in ANTHROPIC.headers(endpoint(key=None))


def test_a_base_url_is_usually_written_without_its_version() -> None:
    assert ANTHROPIC.roots("https://gw.example") == ("https://gw.example/v1", "https://gw.example")
    assert ANTHROPIC.roots("https://gw.example/v1") == ("https://gw.example/v1",)


class TestCaching:
    def test_what_a_later_call_repeats_is_marked(self) -> None:
        body = AnthropicChat().body(replace(CALL, messages=DIALOGUE))

        blocks = [*body["system"], *(m["content"][0] for m in body["messages"])]
        assert [block.get("cache_control") for block in blocks] == [MARK, MARK, None, MARK]

    def test_the_first_call_marks_what_the_second_repeats(self) -> None:
        first, second = DIALOGUE[:2], DIALOGUE

        assert breakpoints([m.role for m in first]) == {0, 1}
        assert breakpoints([m.role for m in first]) <= breakpoints([m.role for m in second])

    @given(st.lists(st.sampled_from(["system", "user", "assistant"]), max_size=30))
    def test_never_more_marks_than_the_api_takes(self, roles: list[Any]) -> None:
        assert len(breakpoints(roles)) <= 4

    @pytest.mark.parametrize("body", [AnthropicChat(caching=False).body(CALL)])
    def test_none_where_refused(self, body: dict[str, Any]) -> None:
        assert "cache_control" not in str(body)

    def test_none_where_switched_off(self) -> None:
        assert "cache_control" not in str(AnthropicChat().body(replace(CALL, caching=False)))


class TestFormats:
    def test_a_closed_schema_is_an_output_format(self) -> None:
        body = AnthropicChat().body(replace(CALL, schema=SCHEMA))

        assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
        assert "tools" not in body

    def test_the_schema_of_our_replies_is_closed(self) -> None:
        assert "output_config" in AnthropicChat().body(replace(CALL, schema=reply_schema()))

    def test_an_open_schema_is_a_tool(self) -> None:
        body = AnthropicChat().body(replace(CALL, schema={"type": "object"}))

        assert body["tools"][0]["input_schema"] == {"type": "object"}
        assert body["tool_choice"] == {"type": "tool", "name": body["tools"][0]["name"]}
        assert "output_config" not in body

    def test_a_refused_format_becomes_a_tool_then_nothing(self) -> None:
        call, protocol, seen = replace(CALL, schema=SCHEMA), AnthropicChat(), []
        for wording in ("output_config: Extra inputs are not permitted", "tools: not supported"):
            body = protocol.body(call)
            seen.append({"output_config", "tools"} & body.keys())
            adapted = protocol.adapted(refusal(wording), body)
            assert adapted is not None
            protocol = adapted

        assert seen == [{"output_config"}, {"tools"}]
        assert {"output_config", "tools", "tool_choice"}.isdisjoint(protocol.body(call))


@pytest.mark.parametrize(
    ("wording", "expected"),
    [
        ("`temperature` is deprecated for this model.", AnthropicChat(temperature=False)),
        ("messages.0.content.0.cache_control: Extra inputs", AnthropicChat(caching=False)),
        (
            "max_tokens: 100 > 64, which is the maximum allowed number of output tokens",
            AnthropicChat(output_limit=64),
        ),
        ("no idea", None),
    ],
)
def test_what_is_refused_is_left_out(wording: str, expected: AnthropicChat | None) -> None:
    assert AnthropicChat().adapted(refusal(wording), AnthropicChat().body(CALL)) == expected


def test_an_output_limit_holds_from_then_on() -> None:
    assert AnthropicChat(output_limit=64).body(CALL)["max_tokens"] == 64


def test_a_long_prompt_or_an_overload_changes_nothing() -> None:
    body = AnthropicChat().body(CALL)
    long = Failure(ContextTooLong("long: short"), status=400, wording="temperature")

    assert AnthropicChat().adapted(long, body) is None
    assert AnthropicChat().adapted(refusal("temperature", 529), body) is None


def test_usage_counts_what_the_cache_held() -> None:
    usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 11,
        "cache_read_input_tokens": 7,
        "output_tokens": 3,
    }
    value = {"model": "claude-x-1", "content": [{"type": "text", "text": "a"}], "usage": usage}

    assert AnthropicChat().read(value) == ReadReply(
        "a", "unknown", "claude-x-1", 23, 3, cache_read_tokens=7, cache_write_tokens=11
    )


_KEYS = st.sampled_from(["content", "type", "text", "input", "usage", "stop_reason", "model"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(_JSON, _JSON)
def test_nothing_raises(value: Any, content: Any) -> None:
    AnthropicChat().read(value)
    reply = AnthropicChat().read({"content": [content], "usage": value, "stop_reason": content})

    assert isinstance(reply, ReadReply)
    reply.text.encode()
