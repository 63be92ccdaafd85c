"""`python -m benchmarks.providers`: how fast embeddings come from a slow server, and what it costs.

A loopback server answers each request 0.2 s after it arrived. All figures of one run come from the
same texts, one after another: one text a call and one call at a time, eight calls at once, batches,
a second run on the cache of the first, one text that never comes, and one call in ten failing.
Ratios are what to compare; seconds are for this machine only.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.llm.chat import HttpChatModel
from agent.llm.embeddings import HttpBatchEmbedder
from agent.llm.endpoint import Endpoint
from agent.llm.http import create_client
from agent.retrieval.embedding.parallel import EmbeddingOptions, ParallelEmbedder
from agent.retrieval.embedding.vector_cache import VectorCache
from benchmarks.keeping import keep, machine, print_figures
from tests.support.faults import Fault, FaultServer, Plan, at_random, never, once
from tests.support.faults_clients import SPOKEN
from tests.support.llm import WordCounter, make_prompt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LATENCY = 0.2
TEXTS = 96
LEAST = {"8 at once / one at a time": 7.0, "in batches / one at a time": 30.0}
"""What the ratios are held to; one below is marked in the table."""
LIMITS = {"second run, calls": 0.0, "HTTP of a chat call, ms": 20.0}
"""What a figure may not exceed."""

_OPENAI = next(spoken for spoken in SPOKEN if spoken.name == "openai")
_CALLS = 50

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Way:
    """How texts are embedded: calls at once, and texts of a call."""

    concurrency: int
    batch: int
    plan: Plan = never


@dataclass(frozen=True, slots=True)
class Run:
    """One `embed` of all texts: its wall time, calls that the server saw, rows without a vector."""

    seconds: float
    calls: int
    zero_rows: int
    connections: int


def embed(texts: Sequence[str], way: Way, cache: Path | None = None) -> Run:
    """Measure one embedder from its first call to its last."""
    store = VectorCache(cache, lambda _: None) if cache else None
    with FaultServer(way.plan, latency=LATENCY) as server:
        started = time.perf_counter()
        rows = asyncio.run(_embedded(texts, way, _OPENAI.endpoint(server), store))
        seconds = time.perf_counter() - started
        calls, connections = server.calls, server.accepted
    if store is not None:
        store.close()
    return Run(seconds, calls, int((~rows.any(axis=1)).sum()), connections)


async def _embedded(
    texts: Sequence[str], way: Way, endpoint: Endpoint, store: VectorCache | None
) -> NDArray[np.float32]:
    options = EmbeddingOptions(concurrency=way.concurrency)
    # The name of a cached vector's server holds its address: here each run has a port of its own.
    async with create_client(trust_env=False) as client:
        model = _Named(endpoint, client, max_batch=way.batch)
        return await ParallelEmbedder(model, lambda _: None, options, store).embed(
            texts, kind="document"
        )


class _Named(HttpBatchEmbedder):
    """The same name whatever the port."""

    name = "benchmark"


def chat_overhead() -> float:
    """Milliseconds of one chat call beside the server's own, over one connection."""

    async def calls(endpoint: Endpoint) -> float:
        async with create_client(trust_env=False) as client:
            model = HttpChatModel(endpoint, client, WordCounter())
            prompt = make_prompt("word " * 6_000)
            await model.complete(prompt, max_output_tokens=100)
            started = time.perf_counter()
            for _ in range(_CALLS):
                await model.complete(prompt, max_output_tokens=100)
            return (time.perf_counter() - started) / _CALLS * 1_000

    with FaultServer() as server:
        return asyncio.run(calls(_OPENAI.endpoint(server)))


def measure(folder: Path) -> Figures:
    """Everything, one after another."""
    texts = [f"def function_{n}(argument):\n    return argument + {n}\n" for n in range(TEXTS)]
    cache = folder / "vectors.sqlite"
    single = embed(texts, Way(1, 1))
    eight = embed(texts, Way(8, 1))
    batches = embed(texts, Way(8, 64), cache)
    again = embed(texts, Way(8, 64), cache)
    slow = embed(texts, Way(8, 1, once(Fault.HANG, at=40)))
    faulty = embed(texts, Way(8, 1, at_random(0.1, 7)))
    return {
        "one at a time, s": single.seconds,
        "8 at once, s": eight.seconds,
        "in batches, s": batches.seconds,
        "8 at once / one at a time": single.seconds / eight.seconds,
        "in batches / one at a time": single.seconds / batches.seconds,
        "connections of 8 at once": eight.connections,
        "second run, s": again.seconds,
        "second run, calls": again.calls,
        "one hanging call, s": slow.seconds,
        "one hanging call, zero rows": slow.zero_rows,
        "10% faults, s": faulty.seconds,
        "10% faults, zero rows": faulty.zero_rows,
        "HTTP of a chat call, ms": chat_overhead(),
    }


def main() -> None:
    """Measure, print a table, keep the result."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--no-save", action="store_true")
    chosen = options.parse_args()
    print(f"{TEXTS} texts, {LATENCY:g} s a request; {machine()}\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="patchshot-bench-") as folder:
        figures = measure(Path(folder))
    print_figures(figures, LIMITS, LEAST)
    if not chosen.no_save:
        keep("providers", {"texts": TEXTS, "figures": figures})


if __name__ == "__main__":
    main()
