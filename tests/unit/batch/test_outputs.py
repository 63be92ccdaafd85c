"""Predictions in all forms, and the state of a run in words that steer no terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.batch import Progress, RunCounts, Summary, Unsolved
from agent.datasets import PredictionsWriter
from agent.errors import ConfigurationError, Status
from tests.support.full_disk import full_at

IDS = ["b", "a", "\u00e9"]


def entry(name: str, patch: str) -> dict[str, str]:
    return {"instance_id": name, "model_name_or_path": "m", "model_patch": patch}


def read(path: Path) -> Any:
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


@pytest.mark.parametrize("name", ["preds.json", "all_preds.jsonl"])
def test_entries_stand_in_the_order_of_the_data_set(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    predictions = PredictionsWriter(path, "m", IDS)
    predictions.write()
    assert path.read_text() == ("" if path.suffix == ".jsonl" else "{}\n")
    for position in (2, 0, 1):
        predictions.put(IDS[position], f"diff\n\u2028{position}")
    predictions.write()
    entries = [entry(name, f"diff\n\u2028{n}") for n, name in enumerate(IDS)]
    written = read(path)
    assert (written if path.suffix == ".jsonl" else list(written.values())) == entries
    assert path.suffix == ".jsonl" or list(written) == IDS


def test_a_full_disk_leaves_the_old_file_and_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    predictions = PredictionsWriter(path, "m", IDS)
    predictions.put("b", "first")
    predictions.write()
    predictions.put("a", "x" * 1000)
    with full_at(200):
        predictions.write()
    assert predictions.failure is not None
    assert read(path) == [entry("b", "first")]
    predictions.write()
    assert predictions.failure is None
    assert [e["instance_id"] for e in read(path)] == ["b", "a"]


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing can be written in"):
        PredictionsWriter(tmp_path / "gone" / "p", "m", IDS)
    with pytest.raises(ConfigurationError, match="not a file"):
        PredictionsWriter(tmp_path, "m", IDS)


def counts() -> RunCounts:
    made = RunCounts(100)
    for _ in range(3):
        made.finish(Status.ACCEPTED, "verified", fresh=True)
    made.finish(Status.ACCEPTED, "not-regressed", fresh=False)
    made.finish(Status.BROKEN, "regressed", fresh=True)
    made.give_up("x", "set-aside", "killed")
    made.give_up("y", "row", "no repository")
    return made


def test_counts_cost_and_the_time_that_is_left() -> None:
    assert counts().standing("$1.5000", 3600.0) == (
        "5/100 done · 4 accepted, 3 verified · 1 set aside · 1 unusable · $1.5000 · ETA 23 h 15 min"
    )
    assert RunCounts(7).standing("$0", 5.0) == "0/7 done · 0 accepted, 0 verified · $0"


@pytest.mark.parametrize("quiet", [False, True])
def test_a_line_an_attempt_unless_quiet(capfd: pytest.CaptureFixture[str], quiet: bool) -> None:
    progress = Progress(quiet=quiet)
    progress.begin(counts(), lambda: "$0.1000")
    progress.note("one \x1b[2Jnote\n")
    progress.ended("x", "accepted")
    progress.close()
    out, err = capfd.readouterr()
    assert out == ""
    if quiet:
        assert err == ""
        return
    first, second = err.splitlines()
    assert first == "one  [2Jnote "
    assert second.startswith("x: accepted | 5/100 done · ")
    assert "$0.1000" in second


def test_the_summary_in_words() -> None:
    summary = Summary(
        instances=5,
        finished=3,
        fresh=2,
        accepted=2,
        verified=1,
        statuses={"accepted": 2, "broken": 1},
        verdicts={"verified": 1},
        unsolved=(Unsolved(instance="x", kind="set-aside", reason="killed"),),
        pending=1,
        cost_usd=0.25,
        unpriced=0,
        replies=4,
        seconds=12.34,
        predictions="preds.json",
        run="preds.run",
        exit_code=130,
        message="interrupted",
    )
    assert summary.in_words() == (
        "3 of 5 instances finished: 2 accepted, 1 broken\n"
        "1 verified, 1 to be done, 1 set aside\n"
        "4 replies paid in 12.3 s, $0.2500 in all\n"
        "predictions in preds.json, everything else in preds.run\n"
    )
