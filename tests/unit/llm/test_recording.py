"""`agent.llm.recording`: what was recorded is answered, and nothing is paid twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.errors import BudgetRefused, ConfigurationError, ReplayMismatch, UsageError
from agent.llm import Budget, BudgetedChatModel, Price, Redactor
from agent.llm.recording import (
    RecordingChatModel,
    ReplayingChatModel,
    ReplyGate,
    ReplyRecording,
    open_recording,
)
from agent.types import Completion, Prompt, Usage
from tests.support.full_disk import full_at
from tests.support.llm import make_prompt, run
from tests.support.scripted_model import ScriptedChatModel

FIRST = Completion("{\u2028é}", "m-001", "stop", Usage(5, 6, None, 1), 1.5)
SECOND = Completion("", "m-001", "length", Usage(7, 8, 0.25, 1), 2.5)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "run.jsonl"


def record(file: Path, *pairs: tuple[Prompt, Completion], hide: Callable[[str], str] = str) -> None:
    with closing(open_recording(file, hide)) as recording:
        inner = ScriptedChatModel([completion for _, completion in pairs], model="m")
        model = RecordingChatModel(inner, recording)
        for number, (prompt, completion) in enumerate(pairs, start=1):
            assert run(model.complete(prompt, max_output_tokens=9)) == completion
            assert len(file.read_bytes().splitlines()) == number


def replay(file: Path, *prompts: Prompt) -> list[Completion]:
    model = ReplayingChatModel(file)
    return [run(model.complete(prompt, max_output_tokens=9)) for prompt in prompts]


def test_replies_come_back_as_recorded(file: Path) -> None:
    one, two = make_prompt("one"), make_prompt("two\ud83d")
    record(file, (one, FIRST), (two, SECOND), (one, SECOND))

    assert replay(file, one, two, one) == [FIRST, SECOND, SECOND]
    assert ReplayingChatModel(file).model == "m"


def test_the_format_of_a_line(file: Path) -> None:
    prompt = make_prompt("one")
    record(file, (prompt, SECOND))

    (line,) = file.read_bytes().splitlines()
    assert json.loads(line) == {
        "format": 1,
        "kind": "chat",
        "sha256": prompt.sha256,
        "request": {
            "model": "m",
            "messages": [
                {"role": "system", "content": "You fix code."},
                {"role": "user", "content": "one"},
            ],
            "max_output_tokens": 9,
        },
        "reply": {
            "text": "",
            "model": "m-001",
            "finish_reason": "length",
            "usage": {"input_tokens": 7, "output_tokens": 8, "cost_usd": 0.25, "calls": 1},
        },
        "seconds": 2.5,
    }


@pytest.mark.parametrize("place", ["folder", "file/below", "/dev/null"])
def test_where_nothing_can_be_recorded(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")

    with pytest.raises(UsageError, match="cannot be recorded to"):
        record(tmp_path / place, (make_prompt(), FIRST))
    assert Path("/dev/null").is_char_device()


def test_another_prompt_is_told_apart_by_its_line_and_counts_as_no_call(file: Path) -> None:
    record(file, (make_prompt("same\nold line\nend"), FIRST))
    model = BudgetedChatModel(ReplayingChatModel(file), Budget())

    with pytest.raises(ReplayMismatch) as caught:
        run(model.complete(make_prompt("same\nnew line\nend"), max_output_tokens=9))

    assert f"exchange 1 of {file} was recorded for another prompt" in str(caught.value)
    assert "text 2, line 2: recorded 'old line', now 'new line'" in str(caught.value)
    assert model.usage.calls == 0


def test_a_recording_that_is_used_up(file: Path) -> None:
    record(file, (make_prompt(), FIRST))
    with pytest.raises(ReplayMismatch, match="no further reply"):
        replay(file, *[make_prompt()] * 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[: len(line) // 2],
        lambda line: line.replace(b'"format":1', b'"format":2'),
        lambda line: line.replace(b'"kind":"chat"', b'"kind":"song"'),
        lambda line: line.replace(b'"seconds"', b'"extra":1,"seconds"'),
        lambda line: b"[]",
        lambda line: b"\xff",
    ],
)
def test_a_damaged_line_is_named(file: Path, damage: Callable[[bytes], bytes]) -> None:
    record(file, (make_prompt("one"), FIRST), (make_prompt("two"), SECOND))
    first, second = file.read_bytes().splitlines()
    file.write_bytes(first + b"\n" + damage(second) + b"\n")

    for read in (ReplayingChatModel, ReplyRecording):
        with pytest.raises(ConfigurationError, match="jsonl:2: not a recorded reply"):
            read(file)


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be replayed"):
        ReplayingChatModel(tmp_path / "none.jsonl")


def test_keys_are_masked_in_a_recording_and_it_is_still_found(file: Path) -> None:
    prompt = make_prompt("The key is my-own-key-1.")
    answer = Completion("You sent my-own-key-1.", "m", "stop", Usage(), 0.0)
    record(file, (prompt, answer), hide=Redactor(["my-own-key-1"]).known)

    assert b"my-own-key-1" not in file.read_bytes()
    assert [done.text for done in replay(file, prompt)] == ["You sent ***."]


# --------------------------------------------------------------------------------------- paid once

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


def ask(path: Path, model: Model, *prompts: Prompt, tokens: int = 100) -> tuple[list[str], int]:
    """The replies of one attempt, and how many of them were paid before."""
    reused: list[None] = []

    async def go() -> list[str]:
        with closing(ReplyRecording(path)) as recording:
            guarded = ReplyGate(recording, lambda: reused.append(None)).guard(model, BUDGET)
            calls = [await guarded.complete(p, max_output_tokens=tokens) for p in prompts]
            assert all(call.usage.cost_usd == pytest.approx(20 / 1e6) for call in calls)
            return [call.text for call in calls]

    return asyncio.run(go()), len(reused)


def test_each_reply_is_paid_and_served_once(tmp_path: Path) -> None:
    path, model = tmp_path / "t", Model()
    assert ask(path, model, PROMPT) == (["reply 1"], 0)
    assert ask(path, model, PROMPT, PROMPT) == (["reply 1", "reply 2"], 1)
    path.write_bytes(path.read_bytes() + b'{"format":1,"ki')  # a torn end
    assert ask(path, model, PROMPT, PROMPT) == (["reply 1", "reply 2"], 2)
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
    assert ask(tmp_path / "t", model, make_prompt(after))[1] == same


def test_another_model_or_limit_is_another_question(tmp_path: Path) -> None:
    model, other = Model(), Model()
    other.model = "other"
    ask(tmp_path / "t", model, PROMPT)
    ask(tmp_path / "t", other, PROMPT)
    ask(tmp_path / "t", model, PROMPT, tokens=200)
    assert (model.calls, other.calls) == (2, 1)


def test_a_provider_whose_budget_is_spent_is_no_fault_of_the_instance(tmp_path: Path) -> None:
    async def refuse() -> None:
        raise BudgetRefused("spent: pay")

    async def go() -> bool:
        with closing(ReplyRecording(tmp_path / "t")) as recording:
            gate = ReplyGate(recording, str)
            with pytest.raises(BudgetRefused):
                await gate.guard(Model(refuse), BUDGET).complete(PROMPT, max_output_tokens=9)
            return gate.broke

    assert asyncio.run(go())


@pytest.mark.parametrize("salvage", [True, False])
def test_a_cancelled_call_is_finished_and_kept_where_that_is_asked_for(
    tmp_path: Path, salvage: bool
) -> None:
    async def go() -> None:
        started = asyncio.Event()

        async def slowly() -> None:
            started.set()
            await asyncio.sleep(0.05)

        with closing(ReplyRecording(tmp_path / "t")) as recording:
            gate = ReplyGate(recording, str)
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


def test_a_reply_that_cannot_be_kept_is_not_used(tmp_path: Path) -> None:
    with full_at(10), pytest.raises(OSError):
        ask(tmp_path / "t", Model(), PROMPT)
