"""`tests.support.scripted_model`: the fake that other tests trust."""

from __future__ import annotations

import pytest

from agent.types import Completion, Usage
from tests.support.llm import make_prompt, run
from tests.support.scripted_model import ScriptedCall, ScriptedChatModel


def test_replies_in_order_and_calls_kept() -> None:
    whole = Completion("c", "m", "length", Usage(1, 1, 0.0, 1), 0.5)
    model = ScriptedChatModel(["one two", whole, ValueError("x")], model="m")
    prompt = make_prompt()

    first = run(model.complete(prompt, max_output_tokens=5, schema={"a": 1}))
    second = run(model.complete(prompt, max_output_tokens=6))
    with pytest.raises(ValueError, match="x"):
        run(model.complete(prompt, max_output_tokens=7))
    with pytest.raises(AssertionError, match="call 4"):
        run(model.complete(prompt, max_output_tokens=8))

    assert first == Completion("one two", "m", "stop", Usage(prompt.tokens, 2, 0.0, 1), 0.0)
    assert second is whole
    assert model.calls[0] == ScriptedCall(prompt, 5, {"a": 1})
    assert model.prompts == (prompt,) * 4
