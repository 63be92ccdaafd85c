"""`agent.batch.progress`: where a run stands, in words that steer no terminal."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from agent.batch.progress import (
    Progress,
    RunCounts,
    TerminalProgress,
    duration,
    progress_for,
    standing,
)
from agent.errors import Status


def counts() -> RunCounts:
    made = RunCounts(100)
    for _ in range(3):
        made.finish(Status.ACCEPTED, "verified", fresh=True)
    made.finish(Status.ACCEPTED, "not-regressed", fresh=False)
    made.finish(Status.BROKEN, "regressed", fresh=True)
    made.give_up("x", "set-aside", "killed")
    made.give_up("y", "row", "no repository")
    return made


def test_counts_rate_cost_and_what_is_left() -> None:
    assert standing(counts(), "$1.5000", 3600.0) == (
        "5/100 done · 4 accepted, 3 verified · 1 set aside · 1 unusable · 4.0/h · $1.5000 · "
        "ETA 23 h 15 min"
    )


def test_before_the_first_there_is_no_rate() -> None:
    assert standing(RunCounts(7), "$0.0000", 5.0) == "0/7 done · 0 accepted, 0 verified · $0.0000"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (100, "2 min"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_line_an_attempt(capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.begin(counts(), lambda: "$0.1000")
    progress.note("one \x1b[2Jnote\n")
    progress.ended("x", "accepted", ok=True)
    progress.close()
    first, second = capfd.readouterr().err.splitlines()
    assert first == "one  [2Jnote "
    assert second.startswith("x: accepted | 5/100 done · ")
    assert "$0.1000" in second


def test_nothing_where_nothing_is_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    progress = progress_for(quiet=True)
    progress.begin(counts(), str)
    progress.note("x")
    progress.ended("x", "y", ok=False)
    progress.close()
    assert capfd.readouterr() == ("", "")
    assert type(progress_for(quiet=False)) is Progress


def test_on_a_terminal_failures_stand_below_the_line() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=200, color_system=None)
    progress = TerminalProgress(console)
    made = counts()
    made.failures.append("y: broken [red]\x1b[2J")
    progress.begin(made, lambda: "$0.1000")
    progress.ended("y", "broken", ok=False)
    progress.ended("x", "accepted [bold]", ok=True)
    time.sleep(0.6)  # a refresh
    progress.close()
    text = shown.getvalue()
    assert "5/100 done" in text
    assert "  y: broken [red] [2J" in text
    assert "✓ x: accepted [bold]" in text
    assert "\x1b[2J" not in text


def test_a_run_that_drains_promises_nothing() -> None:
    counts = RunCounts(total=10)
    counts.finish(Status.ACCEPTED, "verified", fresh=True)
    assert counts.eta(60.0) == pytest.approx(540.0)
    counts.draining = True
    assert counts.eta(60.0) is None
    assert "ETA" not in standing(counts, "$0.1000", 60.0)
