"""A prompt that the server finds too long is packed again and tried once."""

from __future__ import annotations

import json

from agent.errors import ContextTooLong, Status
from agent.retrieval.context.builder import PackingOptions
from tests.support import solving
from tests.support.scripted_model import Reply
from tests.support.solving import modules

EDIT = {"path": "module_00.py", "search": "value_3 = a - b", "replace": "value_3 = a + b"}
GOOD = json.dumps({"thought": "wrong sign", "edits": [EDIT]})
NO_EDIT = json.dumps({"thought": "?", "edits": []})


class Bench(solving.Bench):
    def __init__(self, *replies: Reply, repairs: int = 0, max_steps: int = 0) -> None:
        packing = PackingOptions(budget=6000)
        limits = {"repairs": repairs, "max_steps": max_steps}
        super().__init__(*replies, files=modules(12), packing=packing, **limits)


def too_long(limit: int | None = None, counted: int | None = None) -> ContextTooLong:
    return ContextTooLong("the prompt is too long", limit=limit, counted=counted)


def test_the_second_prompt_fits_the_limit_that_was_told() -> None:
    bench = Bench(too_long(limit=4000), GOOD)
    result = bench.solve()
    assert result.status is Status.ACCEPTED
    first, second = bench.chat.calls
    assert first.prompt.tokens > 4000
    assert second.prompt.tokens + second.max_output_tokens <= 4000
    assert second.max_output_tokens == 1000
    assert second.prompt.messages[0] == first.prompt.messages[0]


def test_without_a_limit_the_context_is_halved() -> None:
    bench = Bench(too_long(), GOOD)
    assert bench.solve().status is Status.ACCEPTED
    first, second = bench.chat.calls
    assert 0.35 < second.prompt.tokens / first.prompt.tokens < 0.8
    assert second.max_output_tokens == first.max_output_tokens


def test_it_is_tried_once() -> None:
    bench = Bench(too_long(limit=4000), too_long(limit=4000), GOOD)
    result = bench.solve()
    assert result.status is Status.PROVIDER
    assert len(bench.chat.calls) == 2


def test_an_issue_that_alone_is_too_long_ends_at_once() -> None:
    bench = Bench(too_long(limit=300), GOOD)
    result = bench.solve()
    assert (result.status, result.message) == (Status.PROVIDER, "the prompt is too long")
    assert len(bench.chat.calls) == 1


def test_only_the_reply_is_cut_where_the_context_fits() -> None:
    bench = Bench(too_long(limit=12_000), GOOD)
    bench.solve()
    first, second = bench.chat.calls
    assert second.prompt == first.prompt
    assert (first.max_output_tokens, second.max_output_tokens) == (8192, 3000)


def test_a_repair_call_too_long_is_packed_again_with_its_conversation() -> None:
    bench = Bench(NO_EDIT, too_long(limit=5000), GOOD, repairs=1)
    assert bench.solve().status is Status.ACCEPTED
    _, second, third = bench.chat.calls
    assert third.prompt.tokens < second.prompt.tokens
    assert [m.role for m in third.prompt.messages] == ["system", "user", "assistant", "user"]
    assert third.prompt.messages[2:] == second.prompt.messages[2:]


def test_the_iterative_mode_is_held_to_the_window() -> None:
    finish = json.dumps({"action": "finish", "thought": "done"})
    edit = json.dumps({"action": "edit", "thought": "fix", "edits": [EDIT]})
    bench = Bench(too_long(limit=4000), NO_EDIT, edit, finish, max_steps=40)
    assert bench.solve().status is Status.ACCEPTED
    assert [call.max_output_tokens for call in bench.chat.calls[2:]] == [1000, 1000]


def test_a_conversation_that_grew_too_long_is_shortened_once() -> None:
    reads = [json.dumps({"action": "read", "path": f"module_{n:02}.py"}) for n in range(1, 5)]
    finish = json.dumps({"action": "finish", "thought": "done"})
    bench = Bench(NO_EDIT, *reads, too_long(limit=6000), finish, max_steps=40)
    bench.solve()
    *_, refused, again = bench.chat.calls
    assert again.prompt.tokens < refused.prompt.tokens
    assert again.max_output_tokens == 1500
