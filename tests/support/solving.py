"""One run of the pipeline on files in memory, with fakes at its seams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agent.retrieval.index.chunking import TreeSitterChunker
from agent.run.pipeline import solve
from agent.run.policy import SolveOptions
from agent.run.record import Ledger, RunRecord
from agent.types import Problem, Verdict
from agent.types.events import Notice
from agent.types.protocols import ChatModel, Retriever, Services
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


def modules(count: int) -> dict[str, str]:
    """Files with one function of thirty lines each."""
    body = "".join(f"    value_{line} = a - b  # a line of some length\n" for line in range(30))
    return {f"module_{n:02}.py": f"def add_{n}(a, b):\n{body}" for n in range(count)}


class Bench:
    """One run against a scripted model, with the events and calls that it makes."""

    def __init__(
        self,
        *replies: Reply,
        files: Mapping[str, str],
        verdicts: tuple[Verdict, ...] = (Verdict.VERIFIED,),
        hang: bool = False,
        escalation: ChatModel | None = None,
        locator: ChatModel | None = None,
        problem: Problem = PROBLEM,
        **options: Any,
    ) -> None:
        self.chat = ScriptedChatModel(replies)
        self.validator = ScriptedValidator([report(v) for v in verdicts], hang=hang)
        self.retriever: Retriever = WholeFileRetriever()
        self.log = EventLog()
        self.patches: list[bytes] = []
        self.ledger = Ledger(on_better=lambda patch: self.patches.append(patch.diff))
        self.options = SolveOptions(**options)
        self.snapshot = MemorySnapshot(files)
        self.problem = problem
        self._models = {"escalation": escalation, "locator": locator}

    async def run(self, **more: Any) -> RunRecord:
        """Run all steps."""
        services = Services(
            self.retriever,
            TreeSitterChunker(),
            ApproximateCounter(),
            self.chat,
            self.validator,
            self.log,
            **self._models,
        )
        return await solve(self.problem, self.snapshot, services, self.options, self.ledger, **more)

    def solve(self, **more: Any) -> RunRecord:
        """Run all steps to the end."""
        return asyncio.run(self.run(**more))

    @property
    def notices(self) -> list[str]:
        """What the user was told."""
        return [event.message for event in self.log.events if isinstance(event, Notice)]
