"""`agent.llm.reranking`: the shapes of `/rerank`, and what refusals lead to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from agent.errors import ConfigurationError, ProviderError
from agent.llm.choice import ProviderSettings, choose_rerank_endpoint
from agent.llm.http import create_client
from agent.llm.reranking import BATCH, HttpReranker, read_scores
from tests.support.llm import run
from tests.support.rerank_server import RerankServer, Shape

LIKED = {"cookie": 0.9, "jar": 0.5}
TEXTS = ("paint", "cookie", "jar")


def scores(server: RerankServer, texts: tuple[str, ...], query: str = "cookies") -> list[float]:
    chosen = choose_rerank_endpoint(
        ProviderSettings(server.base_url, SecretStr("my-key"), "cross"), {}
    )
    assert chosen is not None

    async def go() -> list[float]:
        async with create_client() as client:
            return await HttpReranker(chosen, client).scores(query, texts)

    return run(go())


@pytest.mark.parametrize("shape", ["jina", "cohere", "voyage", "tei"])
def test_scores_come_in_the_order_of_the_texts(shape: Shape) -> None:
    with RerankServer(shape, LIKED) as server:
        assert scores(server, TEXTS) == [0.1, 0.9, 0.5]
    assert server.asked[-1].key == "my-key"
    assert server.asked[-1].path.endswith("/rerank")


def test_a_body_that_is_refused_as_invalid_is_sent_in_the_other_shape() -> None:
    with RerankServer("tei", LIKED) as server:
        scores(server, TEXTS)
    assert [sorted(one.body) for one in server.asked] == [
        ["documents", "model", "query"],
        ["query", "texts", "truncate"],
    ]


def test_many_texts_go_in_batches() -> None:
    texts = tuple(f"text {n}" for n in range(2 * BATCH + 1))
    with RerankServer("tei", {"text 40": 3.0}) as server:
        found = scores(server, texts)
    assert found.index(3.0) == 40
    assert len(found) == len(texts)
    assert max(len(one.body.get("texts", ())) for one in server.asked) == BATCH


def test_texts_that_are_too_long_are_shortened_until_they_fit() -> None:
    with RerankServer("jina", {"cookie": 0.9}, longest=1_000) as server:
        assert scores(server, ("x" * 5_000, "cookie" * 1_000)) == [0.1, 0.9]
    assert [len(one.body["documents"][0]) for one in server.asked] == [4_000, 2_000, 1_000]


def test_secrets_are_masked() -> None:
    secret = "ghp_" + "a1B2" * 9
    with RerankServer("jina") as server:
        scores(server, (f"token = '{secret}'",), query=f"why {secret}")
    assert secret not in str(server.asked)


def test_no_text_is_no_call() -> None:
    with RerankServer("jina") as server:
        assert scores(server, ()) == []
    assert server.asked == []


def test_a_server_that_fails_is_a_provider_error() -> None:
    with RerankServer("broken") as server, pytest.raises(ProviderError, match="503"):
        scores(server, TEXTS)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"results": None},
        {"results": [{"index": 0, "relevance_score": 1.0}]},
        [{"index": 0, "score": 1.0}, {"index": 0, "score": 2.0}],
        [{"index": 0, "score": 1.0}, {"index": 2, "score": 2.0}],
        [{"index": 0, "score": 1.0}, {"index": True, "score": 2.0}],
        [{"index": 0, "score": 1.0}, {"index": 1, "score": "2"}],
        [{"index": 0, "score": 1.0}, {"index": 1, "score": float("nan")}],
        [{"index": 0, "score": 1.0}, {"index": 1}],
        [{"index": 0, "score": 1.0}, 1],
    ],
)
def test_anything_but_one_finite_score_a_text_is_refused(value: Any) -> None:
    assert read_scores(value, 2) is None


def test_a_key_goes_to_its_own_server_only() -> None:
    environment = {"OPENAI_API_KEY": "sk-theirs"}
    other = choose_rerank_endpoint(ProviderSettings("https://rerank.example/v1"), environment)
    assert other is not None
    assert other.api_key is None
    pasted = choose_rerank_endpoint(ProviderSettings("https://rerank.example/v1/rerank"), {})
    assert pasted is not None
    assert pasted.base_url == "https://rerank.example/v1"


def test_nothing_is_reranked_without_an_address() -> None:
    assert choose_rerank_endpoint(ProviderSettings(), {"OPENAI_API_KEY": "sk-x"}) is None
    with pytest.raises(ConfigurationError, match="PATCHSHOT_RERANK_BASE_URL"):
        choose_rerank_endpoint(ProviderSettings(model="cross"), {})
    with pytest.raises(ConfigurationError, match="PATCHSHOT_RERANK_API_KEY"):
        choose_rerank_endpoint(ProviderSettings(api_key=SecretStr("k")), {})
