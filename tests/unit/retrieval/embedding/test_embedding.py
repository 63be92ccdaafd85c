from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from agent.errors import (
    AuthenticationFailed,
    EmbeddingsUnsupported,
    InputTooLong,
    ProviderError,
)
from agent.retrieval.embedding import EmbeddingOptions, ParallelEmbedder, open_vector_cache
from agent.shared.cache import RecordStore
from agent.types.events import Event, ModelCall, Notice
from agent.types.protocols import Embedder
from tests.support.embedders import DIMENSION, FakeBatchEmbedder, hashed_vector

_FAST = EmbeddingOptions(backoff=0.0, longest_wait=0.0, timeout=0.2)
Fault = Callable[[Sequence[str]], NDArray[np.float32] | None]


def unit(text: str) -> NDArray[np.float32]:
    vector = hashed_vector(text)
    return vector / np.linalg.norm(vector)


def make(
    model: FakeBatchEmbedder,
    events: list[Event] | None = None,
    options: EmbeddingOptions = _FAST,
    cache: RecordStore | None = None,
) -> Embedder:
    return ParallelEmbedder(model, (events if events is not None else []).append, options, cache)


def embed(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    return asyncio.run(embedder.embed(texts, kind="document"))


def failing_on(word: str, error: ProviderError, times: int = 10**9) -> Fault:
    left = [times]

    def _on_call(texts: Sequence[str]) -> None:
        if any(word in text for text in texts) and left[0]:
            left[0] -= 1
            raise error

    return _on_call


def calls(events: Sequence[Event]) -> list[ModelCall]:
    return [event for event in events if isinstance(event, ModelCall)]


def notices(events: Sequence[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Notice)]


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.sampled_from(["a", "b b", "c d", " ", "", "long text here"]), max_size=12),
    batch=st.integers(1, 5),
)
def test_rows_are_in_order_normalised_and_zero_for_blank_texts(
    texts: list[str], batch: int
) -> None:
    rows = embed(make(FakeBatchEmbedder(max_batch=batch)), texts)
    assert rows.dtype == np.float32
    blank = not any(text.strip() for text in texts)
    assert rows.shape == (len(texts), 0 if blank else DIMENSION)
    for text, row in zip(texts, rows, strict=True):
        expected = unit(text) if text.strip() else np.zeros(rows.shape[1])
        np.testing.assert_allclose(row, expected, atol=1e-6)


def test_no_more_calls_at_once_than_allowed() -> None:
    texts = [f"text {i}" for i in range(40)]
    for most in (8, 2):
        model = FakeBatchEmbedder(max_batch=1, seconds=lambda _: 0.005)
        embed(make(model, options=EmbeddingOptions(concurrency=most)), texts)
        assert model.most_at_once == most
        assert len(model.calls) == 40


@pytest.mark.parametrize("times", [1, 2])
def test_a_passing_fault_is_tried_again(times: int) -> None:
    model = FakeBatchEmbedder(failing_on("a", ProviderError("busy"), times))
    events: list[Event] = []
    np.testing.assert_allclose(embed(make(model, events), ["a"])[0], unit("a"), atol=1e-6)
    assert len(model.calls) == times + 1
    assert [(call.status, call.attempt, call.texts) for call in calls(events)] == [
        *(("failed", number + 1, 1) for number in range(times)),
        ("ok", times + 1, 1),
    ]
    assert len(events) == times + 1


def test_a_text_that_always_fails_costs_itself_only() -> None:
    model = FakeBatchEmbedder(failing_on("poison", ProviderError("500")), max_batch=8)
    events: list[Event] = []
    texts = ["a", "b", "poison", "c", "d", "e"]
    rows = embed(make(model, events), texts)
    assert [bool(row.any()) for row in rows] == [True, True, False, True, True, True]
    assert notices(events) == ["1 of 6 texts could not be embedded: ranked without"]


def test_nothing_embedded_is_an_error() -> None:
    model = FakeBatchEmbedder(failing_on("", ProviderError("down")))
    with pytest.raises(ProviderError, match="check the embedding server"):
        embed(make(model), ["a", "b"])


def test_too_long_input_is_halved_and_pooled_by_length() -> None:
    def _on_call(texts: Sequence[str]) -> None:
        if any(len(text) > 100 for text in texts):
            raise InputTooLong("too long")

    model = FakeBatchEmbedder(_on_call)
    text = "alpha " * 30 + "beta " * 6
    row = embed(make(model), ["short", text])[1]
    pieces = [call[0] for call in model.calls if len(call) == 1 and len(call[0]) <= 100]
    assert "".join(piece for piece in pieces if piece != "short") == text
    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-6)
    # Nearly all of the text is "alpha": an unweighted mean of halves would not tell.
    assert float(row @ unit("alpha")) > 0.9


@pytest.mark.parametrize("error", [EmbeddingsUnsupported("501: no"), AuthenticationFailed("401")])
def test_a_server_without_embeddings_switches_them_off_once(error: ProviderError) -> None:
    model = FakeBatchEmbedder(failing_on("", error), max_batch=1)
    events: list[Event] = []
    embedder = make(model, events, EmbeddingOptions(concurrency=1, backoff=0))
    for _ in range(3):
        with pytest.raises(type(error), match=str(error)):
            embed(embedder, ["a", "b", "c"])
    assert len(model.calls) == 1
    assert notices(events) == [f"embeddings are switched off: {error}"]


@pytest.mark.parametrize(
    "answer", [np.zeros((2, 0)), np.zeros(3), np.zeros((1, 4)), np.zeros((3, 4))]
)
def test_an_answer_of_the_wrong_shape_is_refused(answer: NDArray[np.float32]) -> None:
    model = FakeBatchEmbedder(lambda texts: answer if len(texts) == 2 else np.zeros((9, 9)))
    with pytest.raises(ProviderError):
        embed(make(model), ["a", "b"])


def test_a_row_that_is_not_finite_or_has_no_direction_is_zero() -> None:
    rows = np.array([[np.nan, 1], [0, 0], [3e38, 3e38], [1, 0]], dtype=np.float32)
    vectors = dict(zip("abcd", rows, strict=True))
    model = FakeBatchEmbedder(lambda texts: np.stack([vectors[text] for text in texts]))
    found = embed(make(model), list("abcd"))
    half = np.sqrt(0.5)
    np.testing.assert_allclose(found, [[0, 0], [0, 0], [half, half], [1, 0]], atol=1e-6)


def test_a_change_of_dimension_is_refused() -> None:
    model = FakeBatchEmbedder(
        lambda texts: np.ones((len(texts), 5 if texts[0] == "c" else 4)), max_batch=1
    )
    embedder = make(model)
    embed(embedder, ["a", "b"])
    with pytest.raises(ProviderError, match="no text could be embedded"):
        embed(embedder, ["c"])


def with_cache(path: Path, model: FakeBatchEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
    with closing(open_vector_cache(path, [].append)) as cache:
        return embed(make(model, cache=cache), texts)


def test_vectors_are_kept_between_runs(tmp_path: Path) -> None:
    first = with_cache(tmp_path / "vectors.sqlite", FakeBatchEmbedder(), ["a", "b"])
    model = FakeBatchEmbedder()
    again = with_cache(tmp_path / "vectors.sqlite", model, ["b", "a"])
    assert model.calls == []
    np.testing.assert_array_equal(again, first[::-1])


def test_cached_vectors_of_another_dimension_are_replaced(tmp_path: Path) -> None:
    old = FakeBatchEmbedder(lambda texts: np.ones((len(texts), 3), dtype=np.float32))
    with_cache(tmp_path / "vectors.sqlite", old, ["a", "b"])
    rows = with_cache(tmp_path / "vectors.sqlite", FakeBatchEmbedder(), ["a", "b", "new"])
    assert rows.shape == (3, DIMENSION)
    np.testing.assert_allclose(rows[0], unit("a"), atol=1e-6)


def test_cancelling_leaves_no_call_running() -> None:
    model = FakeBatchEmbedder(max_batch=1, seconds=lambda _: 30.0)

    async def _main() -> None:
        embedder = make(model, options=EmbeddingOptions(timeout=60))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await embedder.embed(["a", "b", "c"], kind="document")
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(_main())
    assert model.most_at_once == 3


def test_a_hanging_text_in_a_batch_costs_itself_only() -> None:
    model = FakeBatchEmbedder(max_batch=8, seconds=lambda texts: 30.0 if "slow" in texts else 0.0)
    texts = [*"abcdefg", "slow", *"hijklmno"]
    started = time.monotonic()
    rows = embed(make(model, options=EmbeddingOptions(timeout=0.2, backoff=0)), texts)
    assert time.monotonic() - started < 2.0
    assert [text for text, row in zip(texts, rows, strict=True) if not row.any()] == ["slow"]
    assert sum("slow" in call for call in model.calls) == 2  # the batch, then alone


def bounded(
    model: FakeBatchEmbedder, events: list[Event], options: EmbeddingOptions, left: float
) -> Embedder:
    return ParallelEmbedder(model, events.append, options, None, lambda: left)


@pytest.mark.parametrize(
    ("left", "options"),
    [
        (1.0, EmbeddingOptions()),  # a fifth of what is left of the run
        (600.0, EmbeddingOptions(timeout=0.1, backoff=0.0)),  # the batch's tries
    ],
)
def test_a_server_that_never_answers_is_given_up_once(
    left: float, options: EmbeddingOptions
) -> None:
    model = FakeBatchEmbedder(max_batch=2, seconds=lambda _: 30.0)
    events: list[Event] = []
    embedder = bounded(model, events, options, left)
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(ProviderError, match="gave no vectors"):
            embed(embedder, ["a", "b", "c"])
    assert time.monotonic() - started < 1.0
    assert len(notices(events)) == 1
    assert notices(events)[0].startswith("embeddings are switched off")
    assert len(model.calls) <= 6  # a batch and a single text
