"""`agent.llm.protocols` and `.replies`: what is sent and read, and left out once refused."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ContextTooLong, ProviderError
from agent.llm import Price
from agent.llm.failures import Failure
from agent.llm.protocols import PROTOCOLS
from agent.llm.protocols.base import ChatCall, ModelInfo
from agent.llm.replies import ReadReply, read_chat_reply
from agent.patching.schema import reply_schema
from agent.types import Message
from tests.support.llm import chat_body, endpoint

RUN = str(uuid.UUID(int=7))
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
CALL = ChatCall("m", (Message("system", "s"), Message("user", "u")), 100, 0.5)
WITH_SCHEMA = replace(CALL, schema=SCHEMA)
CLAUDE = replace(CALL, model="anthropic/claude-x")
DIALOGUE = (*CALL.messages, Message("assistant", "reply"), Message("user", "why not"))
MARK = {"cache_control": {"type": "ephemeral"}}
PLAIN = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


def chat(kind: str, run: str = RUN) -> Any:
    return PROTOCOLS[kind].chat(endpoint(kind=kind, run_id=run))


def refusal(wording: str, status: int = 400) -> Failure:
    return Failure(ProviderError("refused: no"), status=status, wording=wording)


def after(kind: str, call: ChatCall, *wordings: str) -> dict[str, Any]:
    """The request once the server has refused these, one after the other."""
    protocol = chat(kind)
    for wording in wordings:
        protocol = protocol.adapted(refusal(wording), protocol.body(call))
        assert protocol is not None, wording
    body = protocol.body(call)
    assert isinstance(body, dict)
    return body


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


WRAPPED = {
    "type": "json_schema",
    "json_schema": {"name": "patch", "schema": SCHEMA, "strict": True},
}
OPENAI = {"model": "m", "messages": PLAIN, "stream": False, "max_tokens": 100, "temperature": 0.5}
ANTHROPIC = {
    "model": "m",
    "max_tokens": 100,
    "system": [text("s", **MARK)],
    "messages": [{"role": "user", "content": [text("u", **MARK)]}],
    "temperature": 0.5,
}
RUN_FIELDS = {"run_id": RUN, "evaluation_run_id": RUN}


@pytest.mark.parametrize(
    ("kind", "call", "body"),
    [
        ("openai", CALL, OPENAI),
        ("openai", WITH_SCHEMA, {**OPENAI, "response_format": WRAPPED}),
        ("openai", CLAUDE, {**OPENAI, "model": CLAUDE.model}),
        ("openai", replace(CALL, effort="low"), {**OPENAI, "reasoning_effort": "low"}),
        ("openrouter", CALL, OPENAI),
        ("openrouter", replace(CALL, effort="low"), {**OPENAI, "reasoning": {"effort": "low"}}),
        (
            "openrouter",
            CLAUDE,
            {
                **OPENAI,
                "model": CLAUDE.model,
                "messages": [
                    {"role": "system", "content": [text("s", **MARK)]},
                    {"role": "user", "content": [text("u", **MARK)]},
                ],
            },
        ),
        ("anthropic", CALL, ANTHROPIC),
        ("anthropic", replace(CALL, temperature=1.8), {**ANTHROPIC, "temperature": 1.0}),
        (
            "anthropic",
            WITH_SCHEMA,
            {**ANTHROPIC, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        ),
        (
            "miner",
            WITH_SCHEMA,
            {
                **RUN_FIELDS,
                "model": "m",
                "temperature": 0.5,
                "messages": PLAIN,
                "tool_mode": "none",
            },
        ),
        (
            "miner",
            replace(CALL, model=""),
            {**RUN_FIELDS, "temperature": 0.5, "messages": PLAIN, "tool_mode": "none"},
        ),
    ],
)
def test_requests(kind: str, call: ChatCall, body: dict[str, Any]) -> None:
    assert chat(kind).body(call) == body


def test_an_open_schema_is_not_strict_and_not_for_anthropic() -> None:
    call = replace(CALL, schema={"type": "object"})
    assert not chat("openai").body(call)["response_format"]["json_schema"]["strict"]
    assert "output_config" not in chat("anthropic").body(call)
    assert "output_config" in chat("anthropic").body(replace(CALL, schema=reply_schema()))


OBJECT = {"type": "json_object"}
NO_TEMPERATURE = "`temperature` is deprecated for this model"


@pytest.mark.parametrize(
    ("kind", "wordings", "changed"),
    [
        (
            "openai",
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
            ),
            {"max_tokens": None, "max_completion_tokens": 100},
        ),
        ("openai", (NO_TEMPERATURE,), {"temperature": None}),
        (
            "openai",
            ("'response_format' of type 'json_schema' is not supported",),
            {"response_format": OBJECT},
        ),
        ("openai", ("failed to parse grammar",), {"response_format": OBJECT}),
        (
            "openai",
            ("no json_schema", "must contain the word 'json' to use 'response_format'"),
            {"response_format": None},
        ),
        ("openai", ("This model supports at most 64 completion tokens",), {"max_tokens": 64}),
        ("openai", ("max_tokens: 100 > 64, which is the maximum",), {"max_tokens": 64}),
        ("openrouter", (NO_TEMPERATURE,), {"temperature": None}),
        ("anthropic", (NO_TEMPERATURE,), {"temperature": None}),
        (
            "anthropic",
            ("messages.0.content.0.cache_control: Extra inputs",),
            {"system": [text("s")], "messages": [{"role": "user", "content": [text("u")]}]},
        ),
        ("anthropic", ("max_tokens: 100 > 64, which is the maximum",), {"max_tokens": 64}),
        ("anthropic", ("output_config: Extra inputs are not permitted",), {"output_config": None}),
    ],
)
def test_a_refusal_removes_what_it_names(
    kind: str, wordings: tuple[str, ...], changed: dict[str, Any]
) -> None:
    body = {**chat(kind).body(WITH_SCHEMA), **changed}
    left = {name: value for name, value in body.items() if value is not None}
    assert after(kind, WITH_SCHEMA, *wordings) == left


@pytest.mark.parametrize("kind", ["openai", "openrouter", "anthropic", "miner"])
def test_other_failures_change_nothing(kind: str) -> None:
    protocol = chat(kind)
    body = protocol.body(WITH_SCHEMA)
    long = Failure(ContextTooLong("long: short"), status=400, wording="max_tokens unsupported")
    for failure in (long, refusal("something else"), refusal("temperature", status=529)):
        assert protocol.adapted(failure, body) is None


def test_the_messages_that_a_later_call_repeats_are_marked() -> None:
    body = chat("anthropic").body(replace(CALL, messages=DIALOGUE))
    blocks = [*body["system"], *(m["content"][0] for m in body["messages"])]
    assert ["cache_control" in block for block in blocks] == [True, True, False, True]


def test_usage_has_the_cost_and_what_the_cache_held() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 2,
        "cost": 0.25,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    }
    assert chat("openrouter").read(chat_body("a", usage=usage)) == ReadReply(
        "a", "stop", "test-model-001", 100, 2, 0.25, 60, 30
    )
    usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 11,
        "cache_read_input_tokens": 7,
        "output_tokens": 3,
    }
    value = {"model": "claude-x-1", "content": [text("a")], "usage": usage}
    assert chat("anthropic").read(value) == ReadReply(
        "a", "unknown", "claude-x-1", 23, 3, cache_read_tokens=7, cache_write_tokens=11
    )


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("openai", {"authorization": "Bearer k"}),
        ("openrouter", {"authorization": "Bearer k", "x-title": "patchshot"}),
        ("anthropic", {"anthropic-version": "2023-06-01", "x-api-key": "k"}),
    ],
)
def test_headers_and_keys(kind: str, headers: dict[str, str]) -> None:
    assert PROTOCOLS[kind].headers(endpoint(key="k")) == headers
    assert "k" not in PROTOCOLS[kind].headers(endpoint(key=None)).values()


@pytest.mark.parametrize(
    ("kind", "base_url", "roots"),
    [
        ("openai", "http://h", ("http://h", "http://h/v1")),
        ("openai", "http://h/v1", ("http://h/v1",)),
        ("openai", "http://h/v1beta/openai", ("http://h/v1beta/openai",)),
        ("openai", "http://v1.example", ("http://v1.example", "http://v1.example/v1")),
        ("anthropic", "https://gw", ("https://gw/v1", "https://gw")),
        ("miner", "http://p", ("http://p/api", "http://p/agents")),
        ("miner", "http://p/agents", ("http://p/api", "http://p/agents")),
    ],
)
def test_roots(kind: str, base_url: str, roots: tuple[str, ...]) -> None:
    assert PROTOCOLS[kind].roots(base_url) == roots


PRICED = {"prompt": "0.000003", "completion": "0.000015"}
MINERS = {
    "name": "a",
    "max_input_tokens": 9,
    "cost_usd_per_million_input_tokens": 1,
    "cost_usd_per_million_output_tokens": 2,
}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("openai", {"data": [{"id": "b"}, {"id": "a"}, {"id": "b"}]}, ("b", "a")),
        ("openai", ["a", "", 3, None], ("a",)),
        ("openai", {"data": [{"id": "a", "max_model_len": 4096}]}, (ModelInfo("a", 4096),)),
        ("openai", {"data": [{"id": "a", "context_length": True}]}, ("a",)),
        ("openrouter", [{"id": "v/a", "pricing": PRICED}], (ModelInfo("v/a", None, Price(3, 15)),)),
        (
            "openrouter",
            [{"id": "auto", "pricing": {"prompt": "-1", "completion": "-1"}}],
            ("auto",),
        ),
        ("miner", [MINERS], (ModelInfo("a", 9, Price(1, 2)),)),
        ("openai", {"data": "x"}, ()),
        ("openai", None, ()),
    ],
)
def test_lists_of_models(kind: str, value: Any, expected: tuple[ModelInfo | str, ...]) -> None:
    models = PROTOCOLS[kind].read_models(value)
    assert models == tuple(ModelInfo(e) if isinstance(e, str) else e for e in expected)


_KEYS = st.sampled_from(["data", "id", "content", "type", "text", "usage", "choices", "message"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(_JSON, st.sampled_from(sorted(PROTOCOLS)))
def test_nothing_raises(value: Any, kind: str) -> None:
    chat(kind).read(value)
    chat(kind).read({"content": [value], "usage": value, "stop_reason": value})
    chat(kind).read({"choices": [value], "usage": value, "model": value})
    assert isinstance(PROTOCOLS[kind].read_models(value), tuple)


def test_called_tools_are_an_action_or_a_thought_with_actions() -> None:
    read = {"name": "read", "arguments": '{"action": "x", "path": "a"}'}
    broken = {"name": "list", "arguments": "{"}
    one = read_chat_reply({"choices": [{"message": {"tool_calls": [{"function": read}]}}]})
    both = [{"function": read}, {"function": broken}, {"function": {"arguments": "{}"}}, 3]
    two = read_chat_reply({"choices": [{"message": {"content": "I see", "tool_calls": both}}]})
    assert one is not None
    assert one.called is not None
    assert json.loads(one.called.as_text()) == {"action": "read", "path": "a"}
    assert two is not None
    assert two.called is not None
    assert json.loads(two.called.as_text()) == {
        "thought": "I see",
        "actions": [{"action": "read", "path": "a"}, {"action": "list", "arguments": "{"}],
    }


def test_markers_that_are_refused_are_left_out() -> None:
    body = after("openrouter", CLAUDE, "cache_control: unknown")
    assert body == {**OPENAI, "model": CLAUDE.model}
