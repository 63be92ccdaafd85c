"""`agent.llm.dialect`: what is left out after which refusal."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import ContextTooLong, ProviderError
from agent.llm.dialect import Dialect, is_strict
from agent.llm.failures import Failure

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
