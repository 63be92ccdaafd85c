"""The real transports, pointed at the fault server: one row a protocol."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import SecretStr

from agent.llm import Endpoint, HttpBatchEmbedder, HttpChatModel, Retrier
from tests.support.faults_dialects import KEY, MODEL, Generation
from tests.support.llm import WordCounter

if TYPE_CHECKING:
    import httpx

    from agent.types.protocols import Reporter
    from tests.support.faults import FaultServer

RUN_ID = str(uuid.UUID(int=7))
QUICK = Retrier(first_wait=0.01, longest_wait=0.05)


@dataclass(frozen=True, slots=True)
class Spoken:
    """One protocol: how it is chosen, and where it lives on the server."""

    name: str
    kind: str
    path: str = ""
    generation: Generation = "p3"
    missing: tuple[str, ...] = ()
    embeds: bool = True

    def endpoint(self, server: FaultServer, *, key: str = KEY) -> Endpoint:
        """The server, as a protocol's endpoint."""
        return Endpoint(
            server.url + self.path, SecretStr(key), MODEL, self.kind, "a test", run_id=RUN_ID
        )


SPOKEN = (
    Spoken("openai", "openai", "/v1"),
    Spoken("openrouter", "openrouter", "/api/v1"),
    Spoken("anthropic", "anthropic", "/v1", embeds=False),
    Spoken("p1", "miner", generation="p1"),
    Spoken("p1-agents", "miner", generation="p1", missing=("/api",)),
    Spoken("p2", "miner", generation="p2", embeds=False),
    Spoken("p3", "miner", generation="p3"),
    Spoken("p3-agents", "miner", generation="p3", missing=("/api",)),
)


def chat_model(
    endpoint: Endpoint,
    client: httpx.AsyncClient,
    report: Reporter = lambda _: None,
    *,
    policy: Retrier = QUICK,
    request_seconds: float = 5.0,
) -> HttpChatModel:
    """The chat model with short waits."""
    retrier = replace(policy, report=report)
    return HttpChatModel(
        endpoint, client, WordCounter(), retrier=retrier, request_seconds=request_seconds
    )


def batch_embedder(
    endpoint: Endpoint, client: httpx.AsyncClient, *, request_seconds: float = 5.0
) -> HttpBatchEmbedder:
    """The embedder without retries of its own."""
    return HttpBatchEmbedder(endpoint, client, request_seconds=request_seconds)
