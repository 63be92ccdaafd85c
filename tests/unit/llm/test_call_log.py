"""One event a call, and the file that keeps them."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import AuthenticationFailed, PatchshotError, UsageError
from agent.llm import LogFile, LoggedChatModel, Redactor, create_client
from agent.types import Completion, Usage
from agent.types.events import Event, ModelCall, Notice, StageFinished
from tests.support.fakes import EventLog
from tests.support.faults import Fault, FaultServer, always
from tests.support.faults_clients import SPOKEN, chat_model
from tests.support.llm import make_prompt
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

    class Hanging(ScriptedChatModel):
        async def complete(self, *_: Any, **__: Any) -> Completion:
            await asyncio.sleep(60)
            raise AssertionError

    async def run() -> None:
        model = LoggedChatModel(Hanging([]), log)
        async with asyncio.timeout(0.05):
            await model.complete(make_prompt(), max_output_tokens=9)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    (event,) = log.events
    assert isinstance(event, ModelCall)
    assert event.status == "cancelled"


# ---------------------------------------------------------------------------------------- the file


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_each_event_is_a_line_and_goes_on(tmp_path: Path) -> None:
    forwarded = EventLog()
    path = tmp_path / "logs" / "run.jsonl"
    events: list[Event] = [
        Notice("embeddings are off", "warning"),
        ModelCall("chat", "gpt-x", "ok", 1.23456789, 2, 120, 30, 0.5),
        StageFinished("call", 1.5, "done"),
    ]
    with LogFile(path, forwarded, str) as log:
        for event in events:
            log(event)
    notice, called, finished = lines(path)
    assert forwarded.events == events
    assert notice["event"] == "notice"
    assert datetime.fromisoformat(notice["time"]).tzinfo is not None
    del called["time"]
    assert called == {
        "event": "model-call",
        "kind": "chat",
        "model": "gpt-x",
        "status": "ok",
        "seconds": 1.234568,
        "attempt": 2,
        "input_tokens": 120,
        "output_tokens": 30,
        "cost_usd": 0.5,
        "texts": None,
        "error": "",
    }
    assert finished["stage"] == "call"


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be logged to"):
        LogFile(tmp_path, EventLog(), str)


def test_a_full_disk_ends_the_log_and_nothing_else() -> None:
    forwarded = EventLog()
    with LogFile(Path("/dev/full"), forwarded, str) as log:
        log(Notice("one"))
        log(Notice("two"))
    first, *rest = [event.message for event in forwarded.events if isinstance(event, Notice)]
    assert first.startswith("/dev/full is no longer logged to")
    assert rest == ["one", "two"]


EVENTS = st.one_of(
    st.builds(Notice, st.text(max_size=40)),
    st.builds(
        ModelCall,
        kind=st.just("chat"),
        model=st.text(max_size=20),
        status=st.just("ok"),
        seconds=st.floats(0, 10),
        error=st.text(max_size=40),
    ),
)


@settings(max_examples=60)
@given(event=EVENTS, secret=st.text("abcdefXYZ0123456789-_", min_size=12, max_size=40))
def test_no_secret_is_in_any_log(
    event: Event, secret: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("logs") / "log"
    leaky: list[Event] = [event]
    match event:
        case Notice(message):
            leaky.append(Notice(f"{message}{secret}"))
        case ModelCall():
            leaky.append(ModelCall("chat", secret, "ok", 1.0, error=f"{secret}{event.error}"))
    with LogFile(path, lambda _: None, Redactor([secret])) as log:
        for one in leaky:
            log(one)
    assert secret not in path.read_text("utf-8")
    assert len(lines(path)) == len(leaky)


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.GATEWAY, Fault.GARBAGE, Fault.DROP])
def test_an_error_over_http_holds_no_key(fault: Fault, tmp_path: Path) -> None:
    spoken = SPOKEN[0]

    async def run(server: FaultServer, log: LogFile) -> None:
        async with create_client(trust_env=False) as client:
            http = chat_model(spoken.endpoint(server, key=SECRET), client, log)
            with pytest.raises(PatchshotError) as raised:
                await LoggedChatModel(http, log).complete(
                    make_prompt(f"My key is {SECRET}"), max_output_tokens=9
                )
            assert SECRET not in str(raised.value)

    path = tmp_path / "log"
    with (
        FaultServer(always(fault), keys=False) as server,
        LogFile(path, EventLog(), Redactor([SECRET])) as log,
    ):
        asyncio.run(run(server, log))
    text = path.read_text("utf-8")
    assert SECRET not in text
    assert "My key is" not in text
