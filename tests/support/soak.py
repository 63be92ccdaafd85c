"""Many solves through the real pipeline and the real HTTP stack, while the server misbehaves.

Retrieval ranks whole files and embeds them over HTTP; validation is scripted; parsing, applying,
policy, budget, retries and every transport are the real ones. Each solve opens and closes a client
of its own, as a run of the command does.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.llm import Budget, BudgetedChatModel, LoggedChatModel, RetryPolicy, create_client
from agent.retrieval.embedding import EmbeddingOptions, ParallelEmbedder
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.retrieval.ranking.retriever import embed_both
from agent.run.pipeline import SolveOptions, solve
from agent.run.policy import PolicyOptions
from agent.run.record import Ledger, RunRecord
from agent.types import Problem, Ranking, Verdict
from agent.types.protocols import Embedder, Services
from tests.support.fakes import (
    EventLog,
    MemorySnapshot,
    ScriptedValidator,
    WholeFileRetriever,
    report,
)
from tests.support.faults import PASSING, Fault, FaultServer, at_random
from tests.support.faults_clients import SPOKEN, Spoken, batch_embedder, chat_model
from tests.support.faults_dialects import Generation
from tests.support.tokens import ApproximateCounter

_FAULTS = (*PASSING, Fault.EMPTY, Fault.DRIP, Fault.WRONG_DIMENSION)
# One call in ten fails; so many tries that none of thousands of calls runs out of them.
_TRIES = RetryPolicy(tries=8, first_wait=0.01, longest_wait=0.1)
_EMBEDDING = EmbeddingOptions(tries=8, backoff=0.01, longest_wait=0.1, timeout=4.0)
_OPTIONS = SolveOptions(policy=PolicyOptions(repairs=4, iterative=False))
_REQUEST_SECONDS = 5.0
_AT_ONCE = 8

FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "names.py": "def clean(name):\n    return name.strip()\n",
    "words.py": "def words(text):\n    return text.split()\n",
}
_EDIT = {"path": "calc.py", "search": "return a - b", "replace": "return a + b"}
REPLY = json.dumps({"thought": "the sign", "edits": [_EDIT]})
ADDED = "+    return a + b"


@dataclass(frozen=True, slots=True)
class Resources:
    """Of this process: resident memory in MB, open sockets, tasks of the event loop."""

    memory: float
    sockets: int
    tasks: int

    @classmethod
    def now(cls) -> Resources:
        """Measured after a collection of garbage."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            pages * os.sysconf("SC_PAGE_SIZE") / 1e6, _sockets(), len(asyncio.all_tasks()) - 1
        )


@dataclass(slots=True)
class Figures:
    """What a soak has seen. `lost` describes every solve that did not end as it must."""

    solves: int = 0
    calls: int = 0
    faults: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    warm: Resources | None = None  # after the first tenth
    end: Resources | None = None
    left_open: int = 0  # connections that the servers still hold

    def __str__(self) -> str:
        assert self.warm is not None
        assert self.end is not None
        return (
            f"{self.solves:,} solves, {self.calls:,} calls, {self.faults:,} faults "
            f"({self.faults / self.calls:.1%}) in {self.seconds:.0f} s; lost {len(self.lost)}; "
            f"memory {self.warm.memory:.0f} -> {self.end.memory:.0f} MB, sockets "
            f"{self.warm.sockets} -> {self.end.sockets}, left open {self.left_open}; "
            f"model calls by their end: {dict(sorted(self.kinds.items()))}"
        )


class EmbeddingRetriever(WholeFileRetriever):
    """Whole files, after all of them and the query were embedded. Keeps how many rows are zero."""

    def __init__(self, embedder: Embedder | None) -> None:
        super().__init__()
        self._embedder = embedder
        self.zero_rows = 0

    async def rank(self, problem: Problem, snapshot: MemorySnapshot) -> Ranking:
        """Embed, then rank."""
        if self._embedder is not None:
            texts = [snapshot.text(path) for path in snapshot.files]
            both = await embed_both(self._embedder, problem.text, texts)
            self.zero_rows = sum(int((~rows.any(axis=1)).sum()) for rows in both)
        return await super().rank(problem, snapshot)


def soak(solves: int, *, rate: float = 0.1, seed: int = 7) -> Figures:
    """Run so many solves, several at once, over all protocols in turn."""
    with _servers(rate, seed) as servers:
        figures = asyncio.run(_all(solves, servers))
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and any(server.open for server in servers.values()):
            time.sleep(0.02)
        figures.left_open = sum(server.open for server in servers.values())
        figures.calls = sum(server.calls for server in servers.values())
        figures.faults = sum(server.faults for server in servers.values())
    return figures


@contextmanager
def _servers(rate: float, seed: int) -> Iterator[dict[str, FaultServer]]:
    """One for each way in which servers differ."""
    with ExitStack() as stack:
        servers = {}
        for number, spoken in enumerate(SPOKEN):
            generation: Generation = spoken.generation
            servers[spoken.name] = stack.enter_context(
                FaultServer(
                    at_random(rate, seed + number, _FAULTS),
                    reply=lambda _: REPLY,
                    generation=generation,
                    missing=spoken.missing,
                    kept=False,
                )
            )
        yield servers


async def _all(solves: int, servers: dict[str, FaultServer]) -> Figures:
    figures = Figures()
    started = time.monotonic()
    await _some(range(solves // 10), servers, figures)
    figures.warm = Resources.now()
    await _some(range(solves // 10, solves), servers, figures)
    figures.end = Resources.now()
    figures.seconds = time.monotonic() - started
    return figures


async def _some(numbers: Sequence[int], servers: dict[str, FaultServer], figures: Figures) -> None:
    waiting = iter(numbers)

    async def work() -> None:
        for number in waiting:
            spoken = SPOKEN[number % len(SPOKEN)]
            trouble = await _one(number, spoken, servers[spoken.name], figures)
            figures.solves += 1
            if trouble:
                figures.lost.append(f"{number} ({spoken.name}): {trouble}")

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))


async def _one(number: int, spoken: Spoken, server: FaultServer, figures: Figures) -> str:
    """One solve; in words what is wrong with its end, "" for nothing."""
    log = EventLog()
    ledger = Ledger()
    endpoint = spoken.endpoint(server)
    async with create_client(trust_env=False) as client:
        http = chat_model(endpoint, client, log, policy=_TRIES, request_seconds=_REQUEST_SECONDS)
        budgeted = BudgetedChatModel(http, Budget())
        ledger.usage = lambda: budgeted.usage
        embedder = (
            ParallelEmbedder(
                batch_embedder(endpoint, client, request_seconds=_REQUEST_SECONDS), log, _EMBEDDING
            )
            if spoken.embeds
            else None
        )
        retriever = EmbeddingRetriever(embedder)
        services = Services(
            retriever,
            TreeSitterChunker(),
            ApproximateCounter(),
            LoggedChatModel(budgeted, log),
            ScriptedValidator([report(Verdict.VERIFIED)]),
            log,
        )
        problem = Problem(f"add() subtracts, case {number}", f"add({number}, 1) is wrong.")
        result = await solve(problem, MemorySnapshot(FILES), services, _OPTIONS, ledger)
    figures.kinds.update(_ends(log))
    return _trouble(result, retriever)


def _trouble(result: RunRecord, retriever: EmbeddingRetriever) -> str:
    if result.exit_code != 0 or ADDED not in result.diff:
        return f"exit {result.exit_code}: {result.message}"
    if result.usage.calls != len(result.attempts):
        return f"{result.usage.calls} calls paid for {len(result.attempts)} attempts"
    return f"{retriever.zero_rows} texts have no vector" if retriever.zero_rows else ""


def _ends(log: EventLog) -> Iterator[str]:
    for event in log.events:
        status: Any = getattr(event, "status", None)
        if status is not None:
            yield f"{getattr(event, 'kind', '')} {status}"


def _sockets() -> int:
    links = Path("/proc/self/fd")
    count = 0
    for link in links.iterdir():
        try:
            count += str(link.readlink()).startswith("socket:")
        except OSError:
            continue  # the descriptor of this very listing
    return count
