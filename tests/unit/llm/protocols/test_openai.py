"""`agent.llm.protocols.openai`: requests, roots and lists of models."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProviderError
from agent.llm.failures import Failure
from agent.llm.prices import Price
from agent.llm.protocols.base import ChatCall, ModelInfo
from agent.llm.protocols.openai import (
    OPENAI,
    OpenAIChat,
    OpenAIEmbeddings,
    read_models,
    versioned_roots,
)
from agent.types import Message
from tests.support.llm import endpoint

CALL = ChatCall("m", (Message("system", "s"), Message("user", "u")), 100, 0.5)


def test_a_request() -> None:
    assert OpenAIChat().body(CALL) == {
        "model": "m",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "stream": False,
        "max_tokens": 100,
        "temperature": 0.5,
    }


def test_what_is_refused_is_left_out() -> None:
    failure = Failure(ProviderError("no: no"), status=400, wording="temperature is not supported")

    adapted = OpenAIChat().adapted(failure, OpenAIChat().body(CALL))

    assert adapted is not None
    assert "temperature" not in adapted.body(CALL)
    unknown = Failure(ProviderError("no: no"), status=400, wording="no idea")
    assert OpenAIChat().adapted(unknown, {"max_tokens": 1}) is None


def test_embeddings_go_in_lists() -> None:
    assert OpenAIEmbeddings().body("m", ("a", "b")) == {"model": "m", "input": ["a", "b"]}


@pytest.mark.parametrize(
    ("base_url", "roots"),
    [
        ("http://h", ("http://h", "http://h/v1")),
        ("http://h/v1", ("http://h/v1",)),
        ("http://h/v1beta/openai", ("http://h/v1beta/openai",)),
        ("http://v1.example", ("http://v1.example", "http://v1.example/v1")),
    ],
)
def test_roots(base_url: str, roots: tuple[str, ...]) -> None:
    assert versioned_roots(base_url) == roots


def test_the_key_is_a_bearer_token() -> None:
    assert OPENAI.headers(endpoint(key="k")) == {"authorization": "Bearer k"}
    assert OPENAI.headers(endpoint(key=None)) == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"data": [{"id": "b"}, {"id": "a"}, {"id": "b"}]}, (ModelInfo("b"), ModelInfo("a"))),
        (["a", "", 3, None], (ModelInfo("a"),)),
        ({"data": [{"id": "a", "max_model_len": 4096}]}, (ModelInfo("a", 4096),)),
        ({"data": [{"id": "a", "context_length": True}]}, (ModelInfo("a"),)),
        (
            {
                "data": [
                    {
                        "id": "v/a",
                        "context_length": 8192,
                        "pricing": {"prompt": "0.000003", "completion": "0.000015"},
                    }
                ]
            },
            (ModelInfo("v/a", 8192, Price(3.0, 15.0)),),
        ),
        (
            {"data": [{"id": "auto", "pricing": {"prompt": "-1", "completion": "-1"}}]},
            (ModelInfo("auto"),),
        ),
        ({"data": "x"}, ()),
        (None, ()),
    ],
)
def test_lists_of_models(value: Any, expected: tuple[ModelInfo, ...]) -> None:
    found = read_models(value)

    assert [(m.name, m.context_tokens) for m in found] == [
        (m.name, m.context_tokens) for m in expected
    ]
    for model, wanted in zip(found, expected, strict=True):
        assert (model.price is None) == (wanted.price is None)
        if model.price and wanted.price:
            assert (model.price.input, model.price.output) == pytest.approx(
                (wanted.price.input, wanted.price.output)
            )


_KEYS = st.sampled_from(["data", "id", "name", "pricing", "prompt", "completion", "context_length"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_nothing_raises(value: Any) -> None:
    assert isinstance(read_models(value), tuple)
