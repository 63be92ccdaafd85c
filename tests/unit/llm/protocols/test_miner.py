"""`agent.llm.protocols.miner`: one body for every generation of the proxy."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProviderError
from agent.llm.failures import Failure
from agent.llm.prices import Price
from agent.llm.protocols.base import ChatCall, ModelInfo
from agent.llm.protocols.miner import MINER
from agent.llm.replies import ReadReply
from agent.types import Message
from tests.support.llm import endpoint

RUN = "6d6f1f9e-6a43-4f1c-9d1b-0d5b1b0f8a55"
PLACE = endpoint("http://proxy", key=None, kind="miner", run_id=RUN)
CALL = ChatCall("m", (Message("system", "s"), Message("user", "u")), 100, 0.0, {"type": "object"})


def not_a_uuid() -> Failure:
    wording = "Input should be a valid UUID | uuid_parsing | body | run_id"
    return Failure(ProviderError("no: no"), status=422, wording=wording)


def test_one_body_fits_all_generations() -> None:
    assert MINER.chat(PLACE).body(CALL) == {
        "run_id": RUN,
        "evaluation_run_id": RUN,
        "model": "m",
        "temperature": 0.0,
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "tool_mode": "none",
    }


def test_a_model_that_nobody_chose_is_left_to_the_proxy() -> None:
    body = MINER.chat(PLACE).body(ChatCall("", CALL.messages, 100))
    embeddings = MINER.embeddings
    assert embeddings is not None

    assert "model" not in body
    assert embeddings(PLACE).body("", ["a"]) == {
        "run_id": RUN,
        "evaluation_run_id": RUN,
        "input": "a",
    }
    assert embeddings(PLACE).body("e", ["a"])["model"] == "e"
    assert embeddings(PLACE).max_batch == 1


def test_both_paths_are_known() -> None:
    both = ("http://proxy/api", "http://proxy/agents")

    assert MINER.roots("http://proxy") == both
    assert MINER.roots("http://proxy/agents") == both
    assert (MINER.chat(PLACE).path, MINER.models_path) == ("/inference", "/inference-models")


def test_no_key_is_sent() -> None:
    assert MINER.headers(PLACE) == {}


def test_a_run_that_must_be_a_uuid_becomes_one() -> None:
    place = endpoint("http://proxy", kind="miner", run_id="nocache-1")
    chat, embeddings = MINER.chat(place), MINER.embeddings
    assert embeddings is not None

    adapted = chat.adapted(not_a_uuid(), {})
    other = embeddings(place).adapted(not_a_uuid(), {})

    assert chat.body(CALL)["run_id"] == "nocache-1"
    assert adapted is not None
    assert other is not None
    name = adapted.body(CALL)["run_id"]
    assert str(uuid.UUID(name)) == name == adapted.body(CALL)["evaluation_run_id"]
    assert other.body("", ["a"])["run_id"] == name
    assert adapted.adapted(not_a_uuid(), {}) is None  # it is one: there is nothing else to try


def test_other_refusals_change_nothing() -> None:
    missing = Failure(ProviderError("no: no"), status=422, wording="Field required | body | model")

    assert MINER.chat(endpoint(kind="miner", run_id="x")).adapted(missing, {}) is None
    assert MINER.chat(PLACE).plainer() == MINER.chat(PLACE)


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ("Error in TargonProvider._inference(): KeyError: 'x'", True),
        ('{"detail": "No instances available"}', True),
        ('{"object": "error", "message": "x", "type": "y", "code": 400}', True),
        ("<!DOCTYPE html><title>x</title>", True),
        ('{"message": "all good"}', False),
        ('{"error": "x", "edits": []}', False),
        ('{"detail": broken', False),
        ("Error in the loop: fixed.", False),
        ("plain words", False),
    ],
)
def test_errors_that_come_as_strings(text: str, is_error: bool) -> None:
    read = MINER.chat(PLACE).read(text)

    assert (read.text if isinstance(read, ReadReply) else read) == text
    assert isinstance(read, str) is is_error


def test_the_list_of_models_has_windows_and_prices() -> None:
    row = {
        "name": "v/m",
        "external_name": "v/m-fp8",
        "max_input_tokens": 131072,
        "cost_usd_per_million_input_tokens": 0.25,
        "cost_usd_per_million_output_tokens": 1,
    }

    assert MINER.read_models([row, {"name": "n"}, {"no": "name"}]) == (
        ModelInfo("v/m", 131072, Price(0.25, 1.0)),
        ModelInfo("n"),
    )


_KEYS = st.sampled_from(["name", "id", "cost_usd_per_million_input_tokens", "max_input_tokens"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_nothing_raises(value: Any) -> None:
    assert isinstance(MINER.read_models(value), tuple)
    MINER.chat(PLACE).read(value)
