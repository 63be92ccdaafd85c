"""`agent.batch.journal`: what was written is what a run goes on from."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from agent.batch.journal import (
    Entry,
    Failed,
    Finished,
    Granted,
    Journal,
    RunState,
    SetAside,
    Settled,
    StageEntry,
    Started,
    read_entries,
)
from agent.errors import ConfigurationError, Status

A, B = "a" * 64, "b" * 64
ENTRIES: list[Entry] = [
    Started(id="x", attempt=1),
    StageEntry(id="x", attempt=1, stage="retrieve", seconds=0.5, summary="2 files"),
    Granted(id="x", sha256=A, worst_usd=0.5),
    Settled(id="x", sha256=A, how="paid", cost_usd=0.1),
    Granted(id="x", sha256=B, worst_usd=0.25),
    Failed(id="x", attempt=1, blame="crash", status=Status.CRASHED, reason="killed"),
    Started(id="x", attempt=2),
    Failed(id="x", attempt=2, blame="environment", status=Status.PROVIDER, reason="gone"),
    SetAside(id="y", tries=2, reason="hangs"),
    Finished(id="z", attempt=1, status=Status.ACCEPTED, verdict="verified", seconds=3.0),
]


def test_the_state_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with closing(Journal(path)) as journal:
        for entry in ENTRIES:
            journal.append(entry)
        before = journal.state
    with closing(Journal(path)) as journal:
        assert journal.state == before
    assert list(read_entries(path)) == ENTRIES
    x = before.histories["x"]
    assert (x.attempts, x.crashes, x.finished, x.reason) == (2, 1, None, "gone")
    assert before.histories["z"].finished == ENTRIES[-1]
    assert before.spent_usd == pytest.approx(0.1)
    assert before.held_usd() == pytest.approx(0.25)
    assert before.settled == {("x", A): 1}


def test_a_torn_end_counts_as_not_written_and_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with closing(Journal(path)) as journal:
        journal.append(ENTRIES[0])
    with path.open("ab") as file:
        file.write(b'{"event":"granted","id":"x"')
    with closing(Journal(path)) as journal:
        assert journal.state.open == []
        journal.append(ENTRIES[2])
    assert list(read_entries(path)) == [ENTRIES[0], ENTRIES[2]]


def test_a_damaged_line_is_told(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"event":"started","id":"x","attempt":1}\nnonsense\n')
    with pytest.raises(ConfigurationError, match=r"journal\.jsonl:2: not an entry"):
        Journal(path)


def test_an_unpriced_reply_is_counted_as_such() -> None:
    state = RunState()
    state.add(Settled(id="x", sha256=A, how="paid", cost_usd=None))
    state.add(Settled(id="x", sha256=A, how="recovered", cost_usd=0.5))
    state.add(Settled(id="x", sha256=A, how="dropped", cost_usd=0.0))
    assert (state.unpriced, state.spent_usd, state.settled["x", A]) == (1, 0.5, 2)
