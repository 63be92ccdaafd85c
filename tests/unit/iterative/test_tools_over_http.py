"""The step-by-step mode with the tools of real wire formats, over a loopback server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from agent import iterative
from agent.llm import HttpChatModel
from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.packing import pack
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.run.attempts import Attempt
from agent.run.policy import SolveOptions
from agent.types import ParseFailure, Problem, Ranking, Verdict
from agent.types.protocols import Services
from tests.support.fakes import (
    EventLog,
    MemorySnapshot,
    ScriptedValidator,
    WholeFileRetriever,
    report,
)
from tests.support.llm import endpoint, with_model
from tests.support.loopback import LoopbackServer, Scripted, loopback
from tests.support.tokens import ApproximateCounter

FILES = {"calc.py": "def add(a, b):\n    return a - b\n", "other.py": "X = 1\n"}
EDIT = {"edits": [{"path": "calc.py", "search": "a - b", "replace": "a + b"}]}

Calls = Sequence[tuple[str, Any]]


def openai_reply(calls: Calls, said: str | None = None) -> Mapping[str, Any]:
    tool_calls = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": given if isinstance(given, str) else json.dumps(given),
            },
        }
        for n, (name, given) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": said, "tool_calls": tool_calls or None}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 800},
    }
    return {"id": "1", "model": "m-001", "choices": [choice], "usage": usage}


def anthropic_reply(calls: Calls, said: str | None = None) -> Mapping[str, Any]:
    text = [{"type": "text", "text": said}] if said else []
    uses = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": given}
        for n, (name, given) in enumerate(calls)
    ]
    usage = {
        "input_tokens": 100,
        "output_tokens": 10,
        "cache_read_input_tokens": 800,
        "cache_creation_input_tokens": 100,
    }
    reason = "tool_use" if calls else "end_turn"
    return {"model": "m-001", "content": [*text, *uses], "stop_reason": reason, "usage": usage}


WIRES = {"openai": openai_reply, "openrouter": openai_reply, "anthropic": anthropic_reply}


def solve(
    server: LoopbackServer, kind: str, *, model: str = "test-model", effort: str | None = None
) -> tuple[Attempt, ScriptedValidator]:
    snapshot = MemorySnapshot(FILES)
    validator = ScriptedValidator([report(Verdict.VERIFIED)])
    counter = ApproximateCounter()
    problem = Problem("add subtracts", "")
    bundle = pack(problem, Ranking((), (), 0), snapshot, counter, PackingOptions())
    earlier = [Attempt("one-shot", parse_failure=ParseFailure("malformed", "it was no JSON"))]

    async def use(chat: HttpChatModel) -> Attempt:
        services = Services(
            WholeFileRetriever(), TreeSitterChunker(), counter, chat, validator, EventLog()
        )
        options = SolveOptions(max_steps=8)
        return await iterative.run(
            problem, snapshot, bundle, earlier, services, options, lambda _: None
        )

    place = endpoint(f"{server.url}/v1", kind=kind, model=model)
    return with_model(place, use, effort=effort), validator


def check_wire(kind: str, body: Mapping[str, Any]) -> None:
    """Every call has its result in the message after it, once, as the providers demand."""
    messages = body["messages"]
    for position, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        if kind == "anthropic":
            called = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
            answers = messages[position + 1]["content"]
            answered = [b["tool_use_id"] for b in answers if b["type"] == "tool_result"]
            assert all(b["text"].strip() for b in message["content"] if b["type"] == "text")
        else:
            called = [call["id"] for call in message.get("tool_calls", ())]
            answered = [m["tool_call_id"] for m in messages[position + 1 :][: len(called)]]
        assert called == answered
    assert messages[0]["role"] == ("user" if kind == "anthropic" else "system")


@pytest.mark.parametrize("kind", WIRES)
def test_tools_are_called_in_parallel_and_answered_by_id(kind: str) -> None:
    reply = WIRES[kind]
    script = [
        reply([("read", {"files": [{"path": "calc.py"}]}), ("list", {"path": ""})], "I look."),
        reply([("edit", EDIT)]),
        reply([("run_tests", {"paths": ["t.py"]})]),
        reply([("finish", {"thought": "sign"})]),
    ]
    with loopback(*map(Scripted, script)) as server:
        attempt, validator = solve(server, kind)
        bodies = [request.json for request in server.requests]
    assert b"+    return a + b" in attempt.patch.diff
    assert attempt.proposal.thought == "sign"
    assert len(validator.runs) == 1
    assert len(bodies) == 4
    for body in bodies:
        check_wire(kind, body)
    names = {tool.get("function", tool)["name"] for tool in bodies[0]["tools"]}
    assert names == {"list", "search", "read", "edit", "run_tests", "run", "finish"}
    assert '{"action"' not in json.dumps(bodies[0])  # the schemas say it, the prompt does not
    said = json.dumps(bodies[1])
    assert "I look." in said
    assert "return a - b" in said
    assert attempt.completion.usage.cache_read_tokens == 800


@pytest.mark.parametrize("kind", WIRES)
def test_a_later_request_begins_as_the_one_before(kind: str) -> None:
    """Else no provider could read it from its cache."""
    reply = WIRES[kind]
    lists = [reply([("search", {"query": f"word {n}", "exact": True})]) for n in range(5)]
    with loopback(*map(Scripted, [*lists, reply([("finish", {"thought": ""})])])) as server:
        solve(server, kind, model="anthropic/claude-x" if kind == "openrouter" else "m")
        bodies = [request.json for request in server.requests]
    for one, after in pairwise(bodies):
        assert without_marks(after["messages"])[: len(one["messages"])] == without_marks(
            one["messages"]
        )
        assert one["tools"] == after["tools"]
    marks = json.dumps(bodies[-1]).count("cache_control")
    assert marks == (0 if kind == "openai" else 3)


def without_marks(value: Any) -> Any:
    """The messages without their marks; a marked text of OpenRouter is a list of one part."""
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], dict) and "text" in value[0]:
            return value[0]["text"]
        return [without_marks(item) for item in value]
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return value


REFUSALS = {
    "openai": (400, "test-model does not support tools"),
    "openrouter": (404, "No endpoints found that support tool use."),
    "anthropic": (400, "tools: Extra inputs are not permitted"),
}


@pytest.mark.parametrize("kind", WIRES)
def test_a_server_that_refuses_tools_gets_json_actions(kind: str) -> None:
    status, message = REFUSALS[kind]
    error = {"error": {"type": "invalid_request_error", "message": message}}
    actions = {"thought": "", "actions": [{"action": "edit", **EDIT}, {"action": "list"}]}
    replies = [json.dumps(actions), json.dumps({"action": "finish", "thought": "sign"})]
    models = [Scripted({"data": []})] * (status == 404)  # a 404 may mean that the name is wrong
    told = [Scripted(WIRES[kind]([], text)) for text in replies]
    script = [Scripted(error, status), *models, *told]
    with loopback(*script) as server:
        attempt, _ = solve(server, kind)
        chats = [r.json for r in server.requests if r.method == "POST"]
    assert attempt.patch is not None
    assert ["tools" in body for body in chats] == [True, False, False]
    assert '\\"action\\": \\"edit\\"' in json.dumps(chats[1])
    roles = {message["role"] for message in chats[-1]["messages"]}
    assert roles <= {"system", "user", "assistant"}
