"""The expected outcome of every fault with every protocol, over real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trustme
from numpy.typing import NDArray

from agent.errors import (
    AuthenticationFailed,
    EmbeddingsUnsupported,
    ProviderError,
    ProviderUnreachable,
    UnknownModel,
)
from agent.llm import Retrier, create_client
from agent.retrieval.embedding import EmbeddingOptions, ParallelEmbedder
from agent.types import Completion
from agent.types.events import Event, Notice
from agent.types.protocols import Reporter
from tests.support.faults import PASSING, Fault, FaultServer, Plan, always, never, once
from tests.support.faults_clients import QUICK, SPOKEN, Spoken, batch_embedder, chat_model
from tests.support.faults_dialects import vectors_of
from tests.support.llm import make_prompt

_HOPELESS = tuple(fault for fault in PASSING if fault is not Fault.LATENCY)
_QUICK = EmbeddingOptions(backoff=0.01, longest_wait=0.02, timeout=1.0)
EMBEDDING = tuple(spoken for spoken in SPOKEN if spoken.embeds)


def name_of(value: object) -> str:
    return value.name if isinstance(value, Spoken) else str(value)


def serve(spoken: Spoken, plan: Plan = never, *, tls: ssl.SSLContext | None = None) -> FaultServer:
    return FaultServer(plan, generation=spoken.generation, missing=spoken.missing, tls=tls)


def ask(
    spoken: Spoken,
    server: FaultServer,
    *,
    seconds: float = 5.0,
    policy: Retrier = QUICK,
    report: Reporter = lambda _: None,
) -> Completion:
    async def run() -> Completion:
        async with create_client(trust_env=False) as client:
            model = chat_model(
                spoken.endpoint(server), client, report, policy=policy, request_seconds=seconds
            )
            return await model.complete(make_prompt(), max_output_tokens=100)

    return asyncio.run(run())


@pytest.mark.parametrize("fault", PASSING, ids=name_of)
@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
def test_a_passing_fault_costs_one_more_try(spoken: Spoken, fault: Fault) -> None:
    with serve(spoken, once(fault)) as server:
        done = ask(spoken, server)
        assert done.text == "ready"
        assert server.calls == (1 if fault is Fault.LATENCY else 2)
        assert server.faults == 1


@pytest.mark.parametrize("fault", _HOPELESS, ids=name_of)
@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
def test_a_fault_that_stays_ends_after_all_tries(spoken: Spoken, fault: Fault) -> None:
    with serve(spoken, always(fault)) as server:
        with pytest.raises(ProviderUnreachable, match="tried 3 times"):
            ask(spoken, server, policy=replace(QUICK, tries=3))
        assert server.calls == 3


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
def test_a_reply_that_takes_too_long_is_not_asked_for_again(spoken: Spoken) -> None:
    with serve(spoken, once(Fault.DRIP)) as server:
        with pytest.raises(ProviderUnreachable, match="may charge the call"):
            ask(spoken, server, seconds=0.6)
        assert server.calls == 1


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
def test_waiting_is_as_long_as_asked(spoken: Spoken) -> None:
    events: list[Event] = []
    with serve(spoken, once(Fault.RATE_LIMIT_WAIT)) as server:
        ask(
            spoken, server, report=events.append, policy=Retrier(first_wait=60.0, longest_wait=60.0)
        )
    assert [event.level for event in events if isinstance(event, Notice)] == ["warning"]


@pytest.mark.parametrize("kind", ["openai", "openrouter", "anthropic"])
def test_a_wrong_key_ends_at_once(kind: str) -> None:
    spoken = next(spoken for spoken in SPOKEN if spoken.kind == kind)

    async def run(server: FaultServer) -> None:
        async with create_client(trust_env=False) as client:
            model = chat_model(spoken.endpoint(server, key="sk-wrong-0123456789"), client)
            await model.complete(make_prompt(), max_output_tokens=100)

    with serve(spoken) as server:
        with pytest.raises(AuthenticationFailed) as raised:
            asyncio.run(run(server))
        assert "sk-wrong" not in str(raised.value)
        assert len(server.requests) == 1


@pytest.mark.parametrize("spoken", [s for s in SPOKEN if s.generation != "p1"], ids=name_of)
def test_a_model_that_is_not_there_names_one_that_is(spoken: Spoken) -> None:
    async def run(server: FaultServer) -> None:
        async with create_client(trust_env=False) as client:
            endpoint = replace(spoken.endpoint(server), model="scriptde")
            await chat_model(endpoint, client).complete(make_prompt(), max_output_tokens=100)

    with serve(spoken) as server, pytest.raises(UnknownModel, match="it has scripted"):
        asyncio.run(run(server))


# -------------------------------------------------------------------------------------- embeddings


def embed(
    spoken: Spoken, server: FaultServer, *parts: Sequence[str], report: Reporter = lambda _: None
) -> NDArray[np.float32]:
    """Embed `parts` one after the other, and return the vectors of the last."""

    async def run() -> NDArray[np.float32]:
        async with create_client(trust_env=False) as client:
            model = batch_embedder(spoken.endpoint(server), client, request_seconds=1.0)
            embedder = ParallelEmbedder(model, report, _QUICK)
            return [await embedder.embed(part, kind="document") for part in parts][-1]

    return asyncio.run(run())


@pytest.mark.parametrize("fault", [*PASSING, Fault.DRIP, Fault.WRONG_DIMENSION], ids=name_of)
@pytest.mark.parametrize("spoken", EMBEDDING, ids=name_of)
def test_every_text_has_its_vector_in_spite_of_a_fault(spoken: Spoken, fault: Fault) -> None:
    texts = [f"text {number} of words" for number in range(3)]
    with serve(spoken, once(fault, at=1)) as server:
        rows = embed(spoken, server, ["the first answer"], texts)
        assert server.faults == 1
    np.testing.assert_allclose(rows, np.array(vectors_of(texts)), atol=1e-5)


@pytest.mark.parametrize("spoken", EMBEDDING, ids=name_of)
def test_a_text_that_is_too_long_is_split_and_pooled(spoken: Spoken) -> None:
    texts = ["alpha beta gamma delta epsilon " * 12, "short"]
    server = FaultServer(generation=spoken.generation, missing=spoken.missing, longest=120)
    with server:
        long, short = embed(spoken, server, texts)
        assert server.calls <= 12
    np.testing.assert_allclose(short, vectors_of(["short"])[0], atol=1e-5)
    # Its parts have the words of the whole, in nearly the same proportion.
    assert float(long @ np.array(vectors_of([texts[0]])[0])) > 0.95


@pytest.mark.parametrize("spoken", EMBEDDING, ids=name_of)
def test_embeddings_that_always_fail_are_an_error(spoken: Spoken) -> None:
    with serve(spoken, always(Fault.SERVER_ERROR)) as server, pytest.raises(ProviderError):
        embed(spoken, server, ["a", "b"])


@pytest.mark.parametrize("name", ["p2", "anthropic"])
def test_servers_without_embeddings_are_switched_off_once(name: str) -> None:
    spoken = next(spoken for spoken in SPOKEN if spoken.name == name)
    events: list[Event] = []
    with serve(spoken) as server:
        with pytest.raises(EmbeddingsUnsupported):
            embed(spoken, server, ["a", "b", "c"], report=events.append)
        assert len(server.requests) <= 3
    notices = [event.message for event in events if isinstance(event, Notice)]
    assert len(notices) == 1
    assert notices[0].startswith("embeddings are switched off")


# --------------------------------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
def test_a_private_authority_is_trusted_where_it_is_named(
    spoken: Spoken,
    authority: trustme.CA,
    tls: ssl.SSLContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("NO_PROXY", "localhost")

    async def run(server: FaultServer) -> str:
        async with create_client() as client:
            model = chat_model(spoken.endpoint(server), client)
            return (await model.complete(make_prompt(), max_output_tokens=100)).text

    with serve(spoken, once(Fault.RESET), tls=tls) as server:
        assert asyncio.run(run(server)) == "ready"


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
def test_an_unknown_authority_is_refused_with_advice(spoken: Spoken, tls: ssl.SSLContext) -> None:
    with serve(spoken, tls=tls) as server, pytest.raises(ProviderError, match="set SSL_CERT_FILE"):
        ask(spoken, server)
    assert server.requests == []
