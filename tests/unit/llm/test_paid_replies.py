"""`agent.llm.paid_replies`: nothing is paid twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.errors import BudgetRefused, ConfigurationError
from agent.llm import Budget, Price
from agent.llm.paid_replies import ReplyGate, ReplyRecording
from agent.types import Completion, Prompt, Usage
from tests.support.full_disk import full_at
from tests.support.llm import make_prompt

BUDGET = Budget(price=Price(1.0, 2.0))
PROMPT = make_prompt()


class Model:
    """Counts its calls; `behave` may fail or wait."""

    model = "scripted"

    def __init__(self, behave: Callable[[], Awaitable[None]] | None = None) -> None:
        self.calls = 0
        self._behave = behave

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        self.calls += 1
        if self._behave is not None:
            await self._behave()
        return Completion(f"reply {self.calls}", "scripted-1", "stop", Usage(10, 5, None, 1), 0.5)


def gate_of(recording: ReplyRecording, reused: list[str] | None = None) -> ReplyGate:
    return ReplyGate(recording, lambda: (reused if reused is not None else []).append("reused"))


def ask(
    path: Path,
    model: Model,
    prompt: Prompt = PROMPT,
    tokens: int = 100,
    reused: list[str] | None = None,
) -> Any:
    async def go() -> Completion:
        with closing(ReplyRecording(path)) as recording:
            guarded = gate_of(recording, reused).guard(model, BUDGET)
            return await guarded.complete(prompt, max_output_tokens=tokens)

    return asyncio.run(go())


def test_a_reply_is_on_the_disk_with_its_cost(tmp_path: Path) -> None:
    path = tmp_path / "t"
    done = ask(path, Model())
    assert done.usage.cost_usd == pytest.approx((10 * 1.0 + 5 * 2.0) / 1e6)
    assert path.read_bytes().count(b"\n") == 1


def test_what_was_paid_is_served_without_a_call(tmp_path: Path) -> None:
    path, model, reused = tmp_path / "t", Model(), list[str]()
    first = ask(path, model)
    assert ask(path, model, reused=reused) == first
    assert (model.calls, reused) == (1, ["reused"])


def test_a_reply_is_served_once_in_an_attempt(tmp_path: Path) -> None:
    async def twice() -> list[str]:
        with closing(ReplyRecording(tmp_path / "t")) as recording:
            guarded = gate_of(recording).guard(model, BUDGET)
            return [(await guarded.complete(PROMPT, max_output_tokens=100)).text for _ in range(2)]

    model = Model()
    assert asyncio.run(twice()) == ["reply 1", "reply 2"]
    assert asyncio.run(twice()) == ["reply 1", "reply 2"]
    assert model.calls == 2


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("1 failed in 0.12s", "1 failed in 3.4s", True),
        ("<Basket object at 0x7f3a91c0d2e0>", "<Basket object at 0x7f0011223344>", True),
        ("took 5 ms of 2 seconds", "took 17 ms of 3 seconds", True),
        ("assert 1 == 2", "assert 1 == 3", False),
        ("0.12 shares", "0.13 shares", False),
    ],
)
def test_measured_times_and_addresses_make_no_other_question(
    tmp_path: Path, before: str, after: str, same: bool
) -> None:
    model = Model()
    ask(tmp_path / "t", model, make_prompt(before))
    ask(tmp_path / "t", model, make_prompt(after))
    assert model.calls == (1 if same else 2)


def test_another_model_or_limit_is_another_question(tmp_path: Path) -> None:
    model, other = Model(), Model()
    other.model = "other"
    ask(tmp_path / "t", model)
    ask(tmp_path / "t", other)
    ask(tmp_path / "t", model, tokens=200)
    assert (model.calls, other.calls) == (2, 1)


def test_a_provider_whose_budget_is_spent_is_no_fault_of_the_instance(tmp_path: Path) -> None:
    async def refuse() -> None:
        raise BudgetRefused("spent: pay")

    async def go() -> bool:
        with closing(ReplyRecording(tmp_path / "t")) as recording:
            gate = gate_of(recording)
            with pytest.raises(BudgetRefused):
                await gate.guard(Model(refuse), BUDGET).complete(PROMPT, max_output_tokens=9)
            return gate.broke

    assert asyncio.run(go())


def test_a_reply_that_cannot_be_kept_is_not_used(tmp_path: Path) -> None:
    with full_at(10), pytest.raises(OSError):
        ask(tmp_path / "t", Model())


@pytest.mark.parametrize("salvage", [True, False])
def test_a_cancelled_call_is_finished_and_kept_where_that_is_wanted(
    tmp_path: Path, salvage: bool
) -> None:
    async def go() -> None:
        started = asyncio.Event()

        async def slowly() -> None:
            started.set()
            await asyncio.sleep(0.05)

        with closing(ReplyRecording(tmp_path / "t")) as recording:
            gate = gate_of(recording)
            guarded = gate.guard(Model(slowly), BUDGET)
            call = asyncio.create_task(guarded.complete(PROMPT, max_output_tokens=100))
            await started.wait()
            gate.salvage = salvage
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert len(recording.exchanges) == salvage

    asyncio.run(go())


def test_calls_and_further_tries_keep_their_distance(tmp_path: Path) -> None:
    async def go() -> float:
        clock = asyncio.get_running_loop().time
        with closing(ReplyRecording(tmp_path / "t")) as recording:
            gate, begun = ReplyGate(recording, str, 0.05), clock()
            guarded = gate.guard(Model(), BUDGET)
            await guarded.complete(PROMPT, max_output_tokens=100)
            await gate.sleep(0.0)
            await guarded.complete(make_prompt("another"), max_output_tokens=100)
            return clock() - begun

    assert asyncio.run(go()) >= 0.1


def test_a_recording_with_a_torn_end_and_one_that_is_none(tmp_path: Path) -> None:
    path, model = tmp_path / "t", Model()
    ask(path, model)
    path.write_bytes(path.read_bytes() * 2 + b'{"format":1,"ki')
    with closing(ReplyRecording(path)) as recording:
        assert [sha for sha, *_ in recording.costs()] == [PROMPT.sha256] * 2
    path.write_bytes(b"nonsense\n")
    with pytest.raises(ConfigurationError, match="t:1: not a recorded reply"):
        ReplyRecording(path)
