"""A prompt that exceeds the model's window, for every protocol: it is packed again, once."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent.errors import Status
from agent.llm import Budget, BudgetedChatModel, create_client
from agent.retrieval.context.builder import PackingOptions
from agent.run.record import RunRecord
from tests.support.faults import FaultServer
from tests.support.faults_clients import SPOKEN, Spoken, chat_model
from tests.support.solving import Bench, modules

WINDOW = 2200
EDIT = {"path": "module_00.py", "search": "value_3 = a - b", "replace": "value_3 = a + b"}
REPLY = json.dumps({"thought": "the sign", "edits": [EDIT]})
OPTIONS = {
    "packing": PackingOptions(budget=6000),
    "repairs": 0,
    "max_steps": 0,
}


def run(spoken: Spoken, server: FaultServer) -> RunRecord:
    async def solved() -> RunRecord:
        async with create_client(trust_env=False) as client:
            bench = Bench(files=modules(14), **OPTIONS)
            chat = BudgetedChatModel(chat_model(spoken.endpoint(server), client), Budget())
            bench.chat = chat  # type: ignore[assignment]
            bench.ledger.usage = lambda: chat.usage
            return await bench.run()

    return asyncio.run(solved())


@pytest.mark.parametrize("spoken", SPOKEN, ids=lambda spoken: spoken.name)
def test_the_second_prompt_fits(spoken: Spoken) -> None:
    with FaultServer(
        reply=lambda _: REPLY, generation=spoken.generation, missing=spoken.missing, window=WINDOW
    ) as server:
        result = run(spoken, server)
        assert server.calls == 2
    assert result.status is Status.ACCEPTED, result.message
    assert result.usage.calls == 2
    assert result.receipt is not None
    assert any(f"window of {WINDOW:,} tokens" in note for note in result.receipt.notes)
    assert 0 < result.receipt.tokens < WINDOW * 0.75
