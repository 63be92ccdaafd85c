"""What every `ChatModel` promises, whoever implements it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.errors import ProviderError, ProviderUnreachable
from agent.llm import Budget, BudgetedChatModel, HttpChatModel, LoggedChatModel, create_client
from agent.llm.recording import Recorder, Recording, RecordingChatModel, ReplayingChatModel
from agent.types.protocols import ChatModel
from tests.support.llm import FakeTime, WordCounter, chat_body, endpoint, make_prompt
from tests.support.scripted_model import ScriptedChatModel

REPLY = "two words"
PROMPT = make_prompt()

Opened = AbstractAsyncContextManager[ChatModel]
Opener = Callable[[Path], Opened]


def over_http(kind: str, body: Any) -> Opener:
    @asynccontextmanager
    async def opened(_: Path) -> AsyncIterator[ChatModel]:
        replies = iter([httpx.Response(200, json=body), httpx.Response(401)])
        place = endpoint(kind=kind, run_id="r")
        async with create_client(transport=httpx.MockTransport(lambda _: next(replies))) as client:
            yield HttpChatModel(place, client, WordCounter(), retrier=FakeTime().retrier())

    return opened


BLOCKS = [{"type": "text", "text": REPLY}]
IN_ANY_PROTOCOL = [
    over_http("openai", chat_body(REPLY)),
    over_http("openrouter", chat_body(REPLY)),
    over_http("anthropic", {"content": BLOCKS, "stop_reason": "end_turn"}),
    over_http("miner", REPLY),
    over_http("miner", {"content": REPLY, "tool_calls": []}),
]


def scripted() -> ScriptedChatModel:
    return ScriptedChatModel([REPLY, ProviderUnreachable("gone: wait")])


@asynccontextmanager
async def by_script(_: Path) -> AsyncIterator[ChatModel]:
    yield scripted()


@asynccontextmanager
async def budgeted(_: Path) -> AsyncIterator[ChatModel]:
    yield BudgetedChatModel(scripted(), Budget())


@asynccontextmanager
async def logged(_: Path) -> AsyncIterator[ChatModel]:
    yield LoggedChatModel(scripted(), lambda _: None)


@asynccontextmanager
async def recorded(folder: Path) -> AsyncIterator[ChatModel]:
    with Recorder(folder / "run.jsonl") as recorder:
        yield RecordingChatModel(scripted(), recorder)


@asynccontextmanager
async def replayed(folder: Path) -> AsyncIterator[ChatModel]:
    async with recorded(folder) as model:
        await model.complete(PROMPT, max_output_tokens=50)
    yield ReplayingChatModel(Recording(folder / "run.jsonl"))


@pytest.mark.parametrize(
    "opener", [*IN_ANY_PROTOCOL, by_script, budgeted, logged, recorded, replayed]
)
def test_contract(opener: Opener, tmp_path: Path) -> None:
    async def go() -> None:
        async with opener(tmp_path) as model:
            done = await model.complete(PROMPT, max_output_tokens=50)
            with pytest.raises(Exception) as caught:
                await model.complete(PROMPT, max_output_tokens=50)

        assert model.model
        assert (done.text, done.usage.calls) == (REPLY, 1)
        assert done.finish_reason in ("stop", "unknown")  # the miners' proxy never tells
        assert done.usage.input_tokens > 0
        assert done.usage.output_tokens > 0
        assert done.seconds >= 0
        assert isinstance(caught.value, ProviderError) or opener is replayed
        assert "\n" not in str(caught.value)

    asyncio.run(go())
