"""One event a call."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from agent.errors import AuthenticationFailed, PatchshotError
from agent.llm import HttpChatModel, LoggedChatModel
from agent.types import Completion, Usage
from agent.types.events import Event, ModelCall, Notice
from tests.support.fakes import EventLog
from tests.support.llm import endpoint, make_prompt, with_model
from tests.support.loopback import Scripted, loopback
from tests.support.scripted_model import Reply, ScriptedChatModel

SECRET = "sk-very-secret-0123456789"


def call(*replies: Reply) -> list[Event]:
    """The events of one call."""
    log = EventLog()
    model = LoggedChatModel(ScriptedChatModel(replies), log)

    async def run() -> None:
        await model.complete(make_prompt("a question"), max_output_tokens=9)

    try:
        asyncio.run(run())
    except PatchshotError:
        log(Notice("raised"))
    return log.events


def test_a_call_says_what_it_took() -> None:
    done = Completion("fine", "gpt-x", "stop", Usage(120, 30, 0.5, 1), 1.5)
    (event,) = call(done)
    assert isinstance(event, ModelCall)
    assert (event.kind, event.model, event.status) == ("chat", "gpt-x", "ok")
    assert (event.input_tokens, event.output_tokens, event.cost_usd) == (120, 30, 0.5)
    assert 0 <= event.seconds < 1
    assert event.error == ""


def test_a_failed_call_says_why_and_the_error_goes_on() -> None:
    event, raised = call(AuthenticationFailed("no such key"))
    assert isinstance(event, ModelCall)
    assert (event.status, event.error) == ("authentication-failed", "no such key")
    assert (event.input_tokens, event.output_tokens) == (None, None)
    assert raised == Notice("raised")


def test_a_cancelled_call_is_told_too() -> None:
    log = EventLog()

    async def run() -> None:
        model = LoggedChatModel(Mock(complete=lambda *_, **__: asyncio.sleep(60), model="m"), log)
        async with asyncio.timeout(0.05):
            await model.complete(make_prompt(), max_output_tokens=9)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    (event,) = log.events
    assert isinstance(event, ModelCall)
    assert event.status == "cancelled"


@pytest.mark.parametrize(
    "answer",
    [
        Scripted({"error": SECRET}, 500),
        Scripted(f"<html>{SECRET}", 502),
        Scripted(SECRET),
        Scripted(fault="drop"),
    ],
)
def test_an_error_over_http_holds_no_key(answer: Scripted) -> None:
    log = EventLog()

    async def ask(http: HttpChatModel) -> None:
        prompt = make_prompt(f"My key is {SECRET}")
        with pytest.raises(PatchshotError) as raised:
            await LoggedChatModel(http, log).complete(prompt, max_output_tokens=9)
        assert SECRET not in str(raised.value)

    with loopback(answer) as server:
        with_model(endpoint(server.url, key=SECRET), ask)
    assert SECRET not in repr(log.events)
    assert "My key is" not in repr(log.events)
