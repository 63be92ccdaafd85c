"""`agent.llm.protocols.openrouter`: what it has beyond OpenAI's protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.errors import ProviderError
from agent.llm.failures import Failure
from agent.llm.protocols.base import ChatCall
from agent.llm.protocols.openai import OpenAIChat
from agent.llm.protocols.openrouter import OPENROUTER, OpenRouterChat
from agent.llm.replies import ReadReply
from agent.types import Message
from tests.support.llm import chat_body, endpoint

CLAUDE = ChatCall("anthropic/claude-x", (Message("system", "s"), Message("user", "u")), 100)


def test_models_that_need_marks_get_them() -> None:
    body = OpenRouterChat().body(CLAUDE)

    mark = {"type": "ephemeral"}
    assert [message["content"] for message in body["messages"]] == [
        [{"type": "text", "text": "s", "cache_control": mark}],
        [{"type": "text", "text": "u", "cache_control": mark}],
    ]


@pytest.mark.parametrize(
    ("protocol", "call"),
    [
        (OpenRouterChat(), replace(CLAUDE, model="qwen/qwen3-coder")),
        (OpenRouterChat(), replace(CLAUDE, caching=False)),
        (OpenRouterChat(caching=False), CLAUDE),
    ],
)
def test_all_else_is_openais(protocol: OpenRouterChat, call: ChatCall) -> None:
    assert protocol.body(call) == OpenAIChat().body(call)


def test_refusals_are_learnt() -> None:
    body = OpenRouterChat().body(CLAUDE)
    refused = Failure(ProviderError("no: no"), status=400, wording="cache_control: unknown")
    other = Failure(ProviderError("no: no"), status=400, wording="temperature is deprecated")

    assert OpenRouterChat().adapted(refused, body) == OpenRouterChat(caching=False)
    adapted = OpenRouterChat().adapted(other, body)
    assert adapted is not None
    assert "temperature" not in adapted.body(CLAUDE)


def test_cost_and_cached_tokens_are_read() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 2,
        "cost": 0.25,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    }

    assert OpenRouterChat().read(chat_body("a", usage=usage)) == ReadReply(
        "a", "stop", "test-model-001", 100, 2, 0.25, 60, 30
    )


def test_the_program_names_itself() -> None:
    headers = OPENROUTER.headers(endpoint(key="k"))

    assert headers == {"authorization": "Bearer k", "x-title": "patchshot"}
