"""`agent.llm.replies`: the shapes of replies that servers really send."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.llm.replies import ReadReply, read_chat_reply, without_surrogates


def choice(message: Any, finish: Any = "stop") -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish}]}


def tool_call(arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "patch", "arguments": arguments}}


SHAPES = [
    (choice({"content": "text"}), ReadReply("text", "stop")),
    (choice({"content": "cut"}, "length"), ReadReply("cut", "length")),
    (choice({"content": "cut"}, "MAX_TOKENS"), ReadReply("cut", "length")),
    (choice({"content": "x"}, None), ReadReply("x", "unknown")),
    (choice({"content": "x"}, 3), ReadReply("x", "unknown")),
    (choice({"content": ""}), ReadReply("", "stop")),
    (choice({"content": None}), ReadReply("", "stop")),
    (choice(None), ReadReply("", "stop")),
    ({"choices": []}, ReadReply("", "unknown")),
    ({"choices": None}, ReadReply("", "unknown")),
    ({"choices": ["odd"]}, ReadReply("", "unknown")),
    (
        choice({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        ReadReply("ab", "stop"),
    ),
    (
        choice({"content": [{"type": "thinking", "text": "hm"}, "a", {"text": "b"}, 3, None]}),
        ReadReply("ab", "stop"),
    ),
    (choice({"content": {"type": "text", "text": "a"}}), ReadReply("a", "stop")),
    (choice({"content": "a", "reasoning": "r", "reasoning_content": "r"}), ReadReply("a", "stop")),
    (choice({"content": None, "reasoning_content": "r"}, "length"), ReadReply("", "length")),
    (choice({"content": None, "refusal": "I won't"}), ReadReply("I won't", "refusal")),
    (choice({"content": "a", "refusal": "no"}), ReadReply("a", "stop")),
    (
        choice({"content": None, "tool_calls": [tool_call('{"a": 1}')]}, "tool_calls"),
        ReadReply('{"a": 1}', "tool_calls"),
    ),
    (
        choice({"content": "", "tool_calls": [tool_call({"é": 1}), tool_call("{}")]}),
        ReadReply('{"é": 1}', "stop"),
    ),
    (choice({"function_call": {"arguments": "{}"}}), ReadReply("{}", "stop")),
    (choice({"content": "a", "tool_calls": [tool_call("{}")]}), ReadReply("a", "stop")),
    (choice({"content": "a", "tool_calls": "odd"}), ReadReply("a", "stop")),
    ({"choices": [{"text": "old", "finish_reason": "stop"}]}, ReadReply("old", "stop")),
    ({"message": {"role": "assistant", "content": "o"}, "done": True}, ReadReply("o", "unknown")),
    ({"content": "p", "tool_calls": []}, ReadReply("p", "unknown")),
    ("bare", ReadReply("bare", "stop")),
    ("", ReadReply("", "unknown")),
    (
        {
            **choice({"content": "a"}),
            "model": "m-1",
            "usage": {"prompt_tokens": 3, "completion_tokens": 0},
        },
        ReadReply("a", "stop", "m-1", 3, 0),
    ),
    (
        {**choice({"content": "a"}), "usage": {"input_tokens": 3, "output_tokens": 4, "cost": 0.5}},
        ReadReply("a", "stop", None, 3, 4, 0.5),
    ),
    (
        {**choice({"content": "a"}), "model": 7, "usage": {"prompt_tokens": "x", "cost": -1}},
        ReadReply("a", "stop"),
    ),
    ({**choice({"content": "a"}), "usage": "none"}, ReadReply("a", "stop")),
    (choice({"content": "\ud83d\ude00 \ud83d"}), ReadReply("😀 \ufffd", "stop")),
]


@pytest.mark.parametrize(("value", "expected"), SHAPES)
def test_known_shapes(value: Any, expected: ReadReply) -> None:
    reply = read_chat_reply(value)
    assert reply is not None
    assert replace(reply, called=None) == expected


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


@pytest.mark.parametrize(
    "value", [None, 3, True, [], [choice({"content": "a"})], {}, {"detail": 1}]
)
def test_what_is_no_chat_reply(value: Any) -> None:
    assert read_chat_reply(value) is None


_KEYS = st.sampled_from(
    [
        "choices",
        "message",
        "content",
        "text",
        "type",
        "tool_calls",
        "function",
        "arguments",
        "usage",
        "cost",
        "model",
        "refusal",
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(_JSON, _JSON)
def test_nothing_raises(value: Any, message: Any) -> None:
    read_chat_reply(value)
    reply = read_chat_reply(choice(message))

    assert reply is not None
    assert isinstance(reply.text, str)


@given(st.text(st.characters(min_codepoint=0xD700, max_codepoint=0xE100)))
def test_without_surrogates_can_be_encoded(text: str) -> None:
    without_surrogates(text).encode()
