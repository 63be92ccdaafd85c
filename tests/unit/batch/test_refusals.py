"""`agent batch` says what cannot work before anything is done, and leaves no trace of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.batch import Finished, Started, read_entries
from agent.errors import Status
from agent.llm.recording import exchange_of, format_exchange
from agent.types import Completion, Usage
from tests.support.agent_process import call_agent
from tests.support.batch import leave_result
from tests.support.llm import make_prompt

ROW = {"repo": "o/n", "base_commit": "aaaaaaa", "problem_statement": "x"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set of three instances whose repository is not there: nothing is ever paid."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATCHSHOT_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PATCHSHOT_MODEL", "scripted")
    (tmp_path / "repos").mkdir()
    rows = ({"instance_id": name, **ROW} for name in "abc")
    (tmp_path / "d.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


def batch(**other: Any) -> int:
    given = {"dataset": Path("d.jsonl"), "repos": Path("repos"), "output": Path("p.json")}
    return call_agent("batch", **{**given, **other})


def files(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def make_places(place: Path) -> None:
    """A link to the data set, an empty file, a file, and a folder of something else."""
    (place / "l").symlink_to(place / "d.jsonl")
    (place / "e").touch()
    (place / "f").write_text("x")
    (place / "o").mkdir()
    (place / "o/mine").touch()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"output": "d.jsonl"}, "--output is the --dataset"),
        ({"output": "repos/../d.jsonl"}, "--output is the --dataset"),
        ({"output": "l"}, "--output is the --dataset"),
        ({"output": "f", "environments": "f"}, "--output is the --environments"),
        ({"output": "p.run"}, "--output p.run"),
        ({"output": "gone/p.json"}, "nothing can be written in gone"),
        ({"output": "/proc/p.json", "run": "r"}, "nothing can be written"),
        ({"dataset": "e"}, "no usable row"),
        ({"dataset": "gone.jsonl"}, "gone.jsonl"),
        ({"repos": "gone"}, "--repos gone"),
        ({"slice": "x"}, "--slice x"),
        ({"preset": "no-such"}, "no-such"),
        ({"id": "z"}, "--id z"),
        ({"max_total_cost": 1.0}, "PATCHSHOT_PRICES"),
        ({"address": "auto"}, "--engine ray"),
        ({"address": "head:1"}, "--engine ray"),
        ({"engine": "ray", "address": "127.0.0.1:1"}, "no Ray cluster there"),
        ({"run": "f"}, "--run f"),
        ({"run": "o"}, "--run o"),
    ],
)
def test_one_line_exit_2_and_no_trace(
    place: Path, capfd: pytest.CaptureFixture[str], other: dict[str, Any], reason: str
) -> None:
    make_places(place)
    before = files(place)
    rows = (place / "d.jsonl").read_text()
    assert batch(**other) == 2
    out, err = capfd.readouterr()
    assert reason in err
    assert (out, len(err.splitlines())) == ("", 1)
    assert files(place) == before
    assert (place / "d.jsonl").read_text() == rows


def test_without_a_model_nothing_begins(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PATCHSHOT_BASE_URL")
    assert batch() == 2
    assert "PATCHSHOT_BASE_URL" in capfd.readouterr().err
    assert not (place / "p.run").exists()


def journal(place: Path) -> list[str]:
    return [entry.event for entry in read_entries(place / "p.run/journal.jsonl")]


def test_a_run_in_which_nothing_was_paid_is_not_bound(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert batch() == 2  # no repository: rows that cannot be used
    assert journal(place) == ["run"]
    assert batch(context_tokens=3000, quiet=True) == 2
    assert "was begun with something else" not in capfd.readouterr().err
    assert journal(place).count("run") == 2
    bound = json.loads((place / "p.run/run.json").read_text())
    assert bound["settings"]["context_tokens"] == 3000


def add(place: Path, *entries: Started | Finished) -> None:
    with (place / "p.run/journal.jsonl").open("a") as file:
        file.writelines(f"{entry.model_dump_json()}\n" for entry in entries)


def finish(place: Path, name: str) -> None:
    leave_result(place / "p.run/instances" / name, name)
    done = Finished(id=name, attempt=1, status=Status.ACCEPTED, verdict=None, seconds=1.0)
    add(place, Started(id=name, attempt=1), done)


@pytest.mark.parametrize("how", ["paid", "finished"])
def test_a_run_with_something_in_it_is_bound(
    place: Path, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    batch()
    if how == "paid":
        add(place, Started(id="a", attempt=1))
        (place / "p.run/instances/a").mkdir()
        done = Completion("the reply", "m", "stop", Usage(1, 1, 0.1, 1), 1.0)
        line = format_exchange(exchange_of(make_prompt("Fix it."), "m", 9, done))
        (place / "p.run/instances/a/exchanges.jsonl").write_bytes(line)
    else:
        finish(place, "a")
    before = files(place)
    assert batch(context_tokens=3000) == 2
    assert 'context_tokens "auto", now 3000' in capfd.readouterr().err
    assert files(place) == before
    assert journal(place).count("run") == 1


def test_a_selection_keeps_the_other_predictions_in_the_order_of_the_file(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    batch()
    for name in "cb":
        finish(place, name)
    capfd.readouterr()
    batch(id="b")
    assert list(json.loads((place / "p.json").read_text())) == ["b", "c"]
    assert "(1 kept of instances that are not selected)" in capfd.readouterr().out


def test_a_known_price_lets_a_total_hold(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setenv("PATCHSHOT_PRICES", "1,1")
    batch(max_total_cost=1.0)
    assert journal(place) == ["run"]
