"""`agent.llm.replies`: the shapes of replies that servers really send."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.llm.replies import read_chat_reply, without_surrogates


def choice(message: Any, finish: Any = "stop") -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish}]}


def tool_call(arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "patch", "arguments": arguments}}


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


@given(st.text(st.characters(min_codepoint=0xD700, max_codepoint=0xE100)))
def test_without_surrogates_can_be_encoded(text: str) -> None:
    without_surrogates(text).encode()
