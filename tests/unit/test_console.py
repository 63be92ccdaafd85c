from __future__ import annotations

import io

import pytest
from rich.console import Console

from agent.console import PlainReporter, QuietReporter, TerminalReporter, reporter_for
from agent.events import Notice, StageFinished, StageProgress, StageStarted

EVENTS = (
    StageStarted("retrieve"),
    *(StageProgress("index", done, 40) for done in range(1, 41)),
    Notice("index cache is new"),
    Notice("embeddings are off", "warning"),
    StageFinished("retrieve", 1.234, "12 files"),
    StageFinished("call", 0.5, "", ok=False),
)


def test_plain_lines_count_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = PlainReporter()
    for event in EVENTS:
        reporter(event)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == "retrieve: ranking code ..."
    assert lines[-4:] == [
        "index cache is new",
        "warning: embeddings are off",
        "retrieve: 12 files [1.23 s]",
        "call: stopped [0.50 s]",
    ]
    assert sum(line.startswith("index: ") for line in lines) == 10


def test_quiet_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = QuietReporter()
    for event in EVENTS:
        reporter(event)
    assert capsys.readouterr() == ("", "")


def test_the_terminal_shows_a_line_for_each_finished_stage() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, no_color=True)
    with TerminalReporter(console) as reporter:
        for event in EVENTS:
            reporter(event)
    text = stream.getvalue()
    assert "✓ retrieve" in text
    assert "12 files" in text
    assert "embeddings are off" in text


def test_what_a_repository_says_cannot_style_or_move_the_terminal() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    with TerminalReporter(console) as reporter:
        reporter(Notice("[bold red]shout[/] \x1b]0;title\x07 end"))
    assert "[bold red]shout[/]" in stream.getvalue()
    assert "\x1b]0;" not in stream.getvalue()


def test_without_a_terminal_lines_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(reporter_for(quiet=False), PlainReporter)
    assert isinstance(reporter_for(quiet=True), QuietReporter)
