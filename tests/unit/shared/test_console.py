from __future__ import annotations

import io
import time
from collections.abc import Callable

import pytest
from rich.console import Console

from agent.shared.console import (
    PlainReporter,
    TerminalReporter,
    call_in_words,
)
from agent.types.events import Event, ModelCall, Notice, StageFinished, StageProgress, StageStarted

EVENTS = (
    StageStarted("retrieve"),
    *(StageProgress("index", done, 40) for done in range(1, 41)),
    Notice("index cache is new"),
    Notice("embeddings are off", "warning"),
    StageFinished("retrieve", 1.234, "12 files"),
    StageFinished("call", 0.5, "", ok=False),
)


def test_plain_lines_have_what_ended_and_progress_once_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    reporter = PlainReporter()
    for event in EVENTS:
        reporter(event)
        now += 0.125
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "retrieve: ranking code ...",
        *(f"index: {done:,} of 40" for done in (8, 16, 24, 32, 40)),
        "index cache is new",
        "warning: embeddings are off",
        "retrieve: 12 files [1.23 s]",
        "call: stopped [0.50 s]",
    ]


def test_a_step_that_still_runs_after_a_second_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.shared.console._SECONDS_A_LINE", 0.3)
    reporter = PlainReporter()
    for event in (
        StageStarted("pack"),
        StageStarted("locate"),
        StageFinished("pack", 0.1, "2 pieces"),
        StageStarted("call"),
    ):
        reporter(event)
    assert "call" not in (first := capsys.readouterr().err), first
    time.sleep(0.8)
    assert capsys.readouterr().err == "call: waiting for the model ...\n"
    assert "locate" not in first  # what came after it was printed in its place


def test_a_terminal_shows_one_live_line_with_step_time_and_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, no_color=True)
    with TerminalReporter(console) as reporter:
        reporter(StageStarted("index"))
        reporter(StageFinished("index", 7.0, "336 files"))
        reporter(ModelCall("chat", "m", "ok", 1.0, input_tokens=2000, output_tokens=345))
        reporter(StageStarted("validate"))
        now += 12
        console.print(reporter)
        reporter(StageFinished("validate", 12.0, "no tests", ok=False))
    assert "testing before and after, 12 s" in stream.getvalue()
    assert "(in all 12 s, 2,345 tokens)" in stream.getvalue()
    assert "no tests" in stream.getvalue()
    assert "336 files" not in stream.getvalue()


def shown(*events: Event, verbose: bool = False, redact: Callable[[str], str] = str) -> str:
    """Return what a terminal gets."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, no_color=True)
    with TerminalReporter(console, verbose=verbose, redact=redact) as reporter:
        for event in events:
            reporter(event)
    return stream.getvalue()


def test_what_a_repository_says_cannot_style_or_move_the_terminal() -> None:
    text = shown(Notice("[bold red]shout[/] \x1b]0;title\x07 end"))
    assert "[bold red]shout[/]" in text
    assert "\x1b]0;" not in text


CALL = ModelCall("chat", "gpt-x", "ok", 4.104, 2, 5012, 310, 0.01234)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (CALL, "chat to gpt-x: ok, try 2, 5,012 tokens in, 310 out, $0.0123, 4.10 s"),
        (
            ModelCall("chat", "m", "provider-unreachable", 0.5, 4, error="it is down"),
            "chat to m: provider-unreachable, try 4, 0.50 s: it is down",
        ),
        (ModelCall("embed", "e", "ok", 0.25, texts=64), "embed 64 texts to e: ok, 0.25 s"),
        (ModelCall("embed", "e", "ok", 0.25, texts=1), "embed 1 text to e: ok, 0.25 s"),
    ],
)
def test_a_call_in_one_line(call: ModelCall, line: str) -> None:
    assert call_in_words(call) == line


def test_calls_are_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose in (False, True):
        PlainReporter(verbose=verbose)(CALL)
        assert capsys.readouterr().err == (f"{call_in_words(CALL)}\n" if verbose else "")
        assert ("chat to gpt-x: ok" in shown(CALL, verbose=verbose)) is verbose


def test_what_is_shown_is_redacted(capsys: pytest.CaptureFixture[str]) -> None:
    def redact(text: str) -> str:
        return text.replace("sesame", "***")

    events = (
        StageStarted("call", "sesame"),
        Notice("the key is sesame"),
        ModelCall("chat", "m", "failed", 1.0, error="sesame"),
        StageFinished("call", 1.0, "sesame"),
    )
    reporter = PlainReporter(verbose=True, redact=redact)
    for event in events:
        reporter(event)
    assert "sesame" not in capsys.readouterr().err
    assert "sesame" not in shown(*events, verbose=True, redact=redact)
