"""`agent.cli.commands.batch`: what the command hands on, and the summary for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.batch import Summary, Unsolved
from agent.cli.commands.batch import batch_in_words
from tests.support.agent_process import call_agent

SUMMARY = Summary(
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


def test_the_summary_in_words() -> None:
    assert batch_in_words(SUMMARY) == (
        "3 of 5 instances finished: 2 accepted, 1 broken\n"
        "1 verified, 1 to be done, 1 set aside\n"
        "4 replies paid in 12.3 s, $0.2500 in all\n"
        "predictions in preds.json, everything else in preds.run\n"
    )


def batch(folder: Path, **other: object) -> int:
    (folder / "repos").mkdir(exist_ok=True)
    given = {"dataset": folder / "d.jsonl", "repos": folder / "repos", "output": folder / "p.json"}
    return call_agent("batch", **{**given, **other})


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"slice": "x"}, "--slice x"),
        ({"dataset": Path("gone.jsonl")}, "gone.jsonl"),
        ({"repos": Path("gone")}, "--repos gone"),
        ({"output": Path("gone/preds.json"), "run": Path("r")}, "there is no folder gone"),
        ({}, "no usable row"),
        ({"preset": "no-such"}, "no-such"),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    other: dict[str, object],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATCHSHOT_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PATCHSHOT_MODEL", "scripted")
    row = (
        '{"instance_id": "a", "repo": "o/n", "base_commit": "aaaaaaa", "problem_statement": "x"}\n'
    )
    (tmp_path / "d.jsonl").write_text(row if "output" in other else "")
    assert batch(tmp_path, **other) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1


def test_without_a_model_nothing_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.jsonl").touch()
    assert batch(tmp_path) == 2
    assert "PATCHSHOT_BASE_URL" in capfd.readouterr().err
    assert not (tmp_path / "p.run").exists()
