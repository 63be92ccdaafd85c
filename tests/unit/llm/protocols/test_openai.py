"""`agent.llm.protocols.openai`: requests, roots and lists of models."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ContextTooLong, ProviderError
from agent.llm.failures import Failure
from agent.llm.prices import Price
from agent.llm.protocols.base import ChatCall, ModelInfo
from agent.llm.protocols.openai import (
    OPENAI,
    Dialect,
    OpenAIChat,
    OpenAIEmbeddings,
    is_strict,
    read_models,
    versioned_roots,
)
from agent.types import Message
from tests.support.llm import endpoint

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def refusal(wording: str, status: int = 400) -> Failure:
    return Failure(ProviderError("refused: no"), status=status, wording=wording)


def adapt(dialect: Dialect, failure: Failure) -> Dialect | None:
    return dialect.adapted(failure, dialect.options(9000, 0.0, SCHEMA))


@pytest.mark.parametrize(
    ("dialect", "wording", "expected"),
    [
        (
            Dialect(),
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead. | unsupported_parameter | max_tokens",
            Dialect(limit_name="max_completion_tokens"),
        ),
        (
            Dialect(limit_name="max_completion_tokens"),
            "Unsupported value: 'temperature' does not support 0 with this model. Only the default "
            "(1) value is supported. | temperature",
            Dialect(limit_name="max_completion_tokens", temperature=False),
        ),
        (
            Dialect(),
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported",
            Dialect(format="json_object"),
        ),
        (
            Dialect(),
            "This model does not support response format `json_schema`",
            Dialect(format="json_object"),
        ),
        (
            Dialect(format="json_object"),
            "'messages' must contain the word 'json' to use 'response_format' 'json_object'",
            Dialect(format="none"),
        ),
        (Dialect(), "failed to parse grammar", Dialect(format="json_object")),
        (
            Dialect(format="none"),
            "max_tokens is too large: 9000. This model supports at most 4096 completion tokens, "
            "whereas you provided 9000.",
            Dialect(format="none", output_limit=4096),
        ),
        (
            Dialect(),
            "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens",
            Dialect(output_limit=8192),
        ),
        (Dialect(limit_name="max_completion_tokens"), "max_completion_tokens is unknown", None),
        (Dialect(format="none"), "response_format is not supported", None),
        (Dialect(temperature=False), "temperature is deprecated", None),
        (Dialect(), "something else is wrong", None),
    ],
)
def test_a_refusal_removes_what_it_names(
    dialect: Dialect, wording: str, expected: Dialect | None
) -> None:
    assert adapt(dialect, refusal(wording)) == expected


def test_other_failures_change_nothing() -> None:
    too_long = Failure(
        ContextTooLong("too long: shorten"), status=400, wording="max_tokens unsupported, context"
    )

    assert adapt(Dialect(), too_long) is None
    assert adapt(Dialect(), refusal("response_format", status=500)) is None


def test_options_by_dialect() -> None:
    wrapped = {"name": "patch", "schema": SCHEMA, "strict": True}

    assert Dialect().options(10, 0.5, SCHEMA) == {
        "max_tokens": 10,
        "temperature": 0.5,
        "response_format": {"type": "json_schema", "json_schema": wrapped},
    }
    assert Dialect("max_completion_tokens", False, "json_object", 5).options(10, 0, SCHEMA) == {
        "max_completion_tokens": 5,
        "response_format": {"type": "json_object"},
    }
    assert Dialect(format="none").options(10, 0, SCHEMA) == {"max_tokens": 10, "temperature": 0}
    assert Dialect().options(10, 0, None) == {"max_tokens": 10, "temperature": 0}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (SCHEMA, True),
        ({**SCHEMA, "required": []}, False),
        ({**SCHEMA, "additionalProperties": True}, False),
        ({"type": "array", "items": {"type": "object", "properties": {}}}, False),
        ({"anyOf": [SCHEMA, {"type": "null"}]}, True),
        ({"type": "string"}, True),
    ],
)
def test_strict_schemas(schema: Any, expected: bool) -> None:
    assert is_strict(schema) is expected


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
