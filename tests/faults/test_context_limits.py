"""A prompt that exceeds the model's window, for every protocol: it is packed again, once."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent.errors import Status
from agent.llm import Budget, BudgetedChatModel, create_client
from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.run.pipeline import SolveOptions, solve
from agent.run.policy import PolicyOptions
from agent.run.record import Ledger, RunRecord
from agent.types import Problem, Verdict
from agent.types.protocols import Services
from tests.support.fakes import (
    EventLog,
    MemorySnapshot,
    ScriptedValidator,
    WholeFileRetriever,
    report,
)
from tests.support.faults import FaultServer
from tests.support.faults_clients import SPOKEN, Spoken, chat_model
from tests.support.tokens import ApproximateCounter

WINDOW = 2200
_BODY = "".join(f"    value_{line} = a - b  # a line of some length\n" for line in range(30))
FILES = {f"module_{n:02}.py": f"def add_{n}(a, b):\n{_BODY}" for n in range(14)}
EDIT = {"path": "module_00.py", "search": "value_3 = a - b", "replace": "value_3 = a + b"}
REPLY = json.dumps({"thought": "the sign", "edits": [EDIT]})


def run(spoken: Spoken, server: FaultServer) -> RunRecord:
    ledger = Ledger()
    options = SolveOptions(
        packing=PackingOptions(budget=6000), policy=PolicyOptions(repairs=0, iterative=False)
    )

    async def solved() -> RunRecord:
        async with create_client(trust_env=False) as client:
            chat = BudgetedChatModel(chat_model(spoken.endpoint(server), client), Budget())
            ledger.usage = lambda: chat.usage
            services = Services(
                WholeFileRetriever(),
                TreeSitterChunker(),
                ApproximateCounter(),
                chat,
                ScriptedValidator([report(Verdict.VERIFIED)]),
                EventLog(),
            )
            problem = Problem("add_0 subtracts", "add_0(1, 2) is wrong.")
            return await solve(problem, MemorySnapshot(FILES), services, options, ledger)

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
