"""A prompt that the server finds too long is packed again and tried once."""

from __future__ import annotations

import asyncio
import json

from agent.errors import ContextTooLong, Status
from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.run.pipeline import SolveOptions, solve
from agent.run.policy import PolicyOptions
from agent.run.record import Ledger, RunRecord
from agent.types import Completion, Problem, Usage, Verdict
from agent.types.events import Notice
from agent.types.protocols import Services
from tests.support.fakes import (
    EventLog,
    MemorySnapshot,
    ScriptedValidator,
    WholeFileRetriever,
    report,
)
from tests.support.scripted_model import Reply, ScriptedChatModel
from tests.support.tokens import ApproximateCounter

PROBLEM = Problem("add() subtracts", "add(1, 2) gives -1.")
FILES = {
    f"module_{number}.py": f"def add_{number}(a, b):\n"
    + "".join(f"    value_{line} = a - b  # a line of some length\n" for line in range(30))
    for number in range(12)
}
EDIT = {"path": "module_0.py", "search": "value_3 = a - b", "replace": "value_3 = a + b"}
GOOD = json.dumps({"thought": "wrong sign", "edits": [EDIT]})
NO_EDIT = json.dumps({"thought": "?", "edits": []})
ONCE = PolicyOptions(repairs=0, iterative=False)
REPAIR = PolicyOptions(repairs=1, iterative=False)


class Bench:
    """One run against a scripted model, with the events and calls that it made."""

    def __init__(self, *replies: Reply, policy: PolicyOptions = ONCE) -> None:
        self.chat = ScriptedChatModel(replies)
        self.log = EventLog()
        self.ledger = Ledger()
        self.options = SolveOptions(packing=PackingOptions(budget=6000), policy=policy)

    def solve(self) -> RunRecord:
        services = Services(
            WholeFileRetriever(),
            TreeSitterChunker(),
            ApproximateCounter(),
            self.chat,
            ScriptedValidator([report(Verdict.VERIFIED)]),
            self.log,
        )
        snapshot = MemorySnapshot(FILES)
        return asyncio.run(solve(PROBLEM, snapshot, services, self.options, self.ledger))

    @property
    def notices(self) -> list[str]:
        return [event.message for event in self.log.events if isinstance(event, Notice)]


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


def test_the_receipt_and_the_events_tell_of_it() -> None:
    bench = Bench(too_long(limit=4000), GOOD)
    result = bench.solve()
    assert any("window of 4,000 tokens" in notice for notice in bench.notices)
    assert result.receipt is not None
    assert any("window of 4,000 tokens" in note for note in result.receipt.notes)
    assert result.receipt.tokens < 3000
    assert bench.ledger.bundle is not None
    assert result.receipt.tokens == bench.ledger.bundle.tokens


def test_only_the_reply_is_cut_where_the_context_fits() -> None:
    bench = Bench(too_long(limit=12_000), GOOD)
    bench.solve()
    first, second = bench.chat.calls
    assert second.prompt == first.prompt
    assert (first.max_output_tokens, second.max_output_tokens) == (8192, 3000)


def test_a_repair_call_too_long_is_packed_again_with_its_conversation() -> None:
    bench = Bench(NO_EDIT, too_long(limit=5000), GOOD, policy=REPAIR)
    assert bench.solve().status is Status.ACCEPTED
    _, second, third = bench.chat.calls
    assert third.prompt.tokens < second.prompt.tokens
    assert [m.role for m in third.prompt.messages] == ["system", "user", "assistant", "user"]
    assert third.prompt.messages[2:] == second.prompt.messages[2:]


def test_a_repair_call_keeps_what_was_learnt() -> None:
    bench = Bench(too_long(limit=4000), NO_EDIT, GOOD, policy=REPAIR)
    assert bench.solve().status is Status.ACCEPTED
    _, second, third = bench.chat.calls
    assert third.max_output_tokens == second.max_output_tokens == 1000
    assert third.prompt.messages[:2] == second.prompt.messages[:2]


def test_the_iterative_mode_is_held_to_the_window() -> None:
    finish = json.dumps({"action": "finish", "thought": "done"})
    edit = json.dumps({"action": "edit", "thought": "fix", "edits": [EDIT]})
    bench = Bench(
        too_long(limit=4000), NO_EDIT, edit, finish, policy=PolicyOptions(0, iterative=True)
    )
    assert bench.solve().status is Status.ACCEPTED
    assert [call.max_output_tokens for call in bench.chat.calls[2:]] == [1000, 1000]


def test_a_conversation_that_grew_too_long_is_shortened_once() -> None:
    reads = [json.dumps({"action": "read", "path": f"module_{n}.py"}) for n in range(1, 5)]
    finish = json.dumps({"action": "finish", "thought": "done"})
    bench = Bench(
        NO_EDIT, *reads, too_long(limit=6000), finish, policy=PolicyOptions(0, iterative=True)
    )
    bench.solve()
    *_, refused, again = bench.chat.calls
    assert again.prompt.tokens < refused.prompt.tokens
    assert again.max_output_tokens == 1500


def test_the_tokens_of_the_call_that_succeeded_are_those_of_the_result() -> None:
    usage = Usage(1234, 56, 0.01, 1)
    bench = Bench(too_long(limit=4000), Completion(GOOD, "m", "stop", usage, 0.1))
    bench.ledger.usage = lambda: usage
    assert bench.solve().usage.input_tokens == 1234
