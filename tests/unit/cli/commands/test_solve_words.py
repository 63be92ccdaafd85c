"""The last line of `agent solve`."""

from __future__ import annotations

from agent.cli.commands.common import in_words
from agent.errors import Status
from agent.run.record import Ledger, make_record


def last_line(status: Status, message: str) -> str:
    return in_words(make_record(Ledger(), status=status, message=message), has_patch=True)


def test_a_line_that_announces_brings_what_it_announces() -> None:
    message = "The patch leaves files that do not parse:\ncalc.py, line 6: '(' was never closed\nx"
    assert "do not parse: calc.py, line 6: '(' was never closed; the diff" in last_line(
        Status.BROKEN, message
    )


def test_a_sentence_is_not_ended_twice() -> None:
    line = last_line(Status.UNVERIFIED, "Only the syntax was checked.\nmore")
    assert "Only the syntax was checked; the diff applies" in line
    assert "more" not in line


def test_a_status_is_said_once() -> None:
    assert last_line(Status.INTERRUPTED, "interrupted").startswith("agent: interrupted; the diff")
