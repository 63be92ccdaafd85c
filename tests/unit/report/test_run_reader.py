from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from agent.report.rows import ReportRow, ReportRun, Stage
from agent.report.run_reader import load
from agent.report.summary import summarise

from agent.batch.journal import Failed, RunEnded, RunStarted, Settled, StageEntry, Started
from agent.cli.commands.batch import report_in_words
from agent.errors import ConfigurationError, Status
from agent.report.evaluations import Evaluated
from agent.report.text import Cleaner
from tests.support.run_folders import ENDS, RunFolder, make_run


def read(folder: Path, **evaluation: bool) -> ReportRun:
    said = {name: Evaluated(resolved=done) for name, done in evaluation.items()}
    return load(folder, said, Cleaner())


def row_of(run: ReportRun, name: str) -> ReportRow:
    return next(row for row in run.rows if row.id == name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("run") / "preds.run"
    make_run(root, len(ENDS))
    return root


def test_every_end_is_told_in_the_order_of_the_data_set(folder: Path) -> None:
    run = read(folder)
    assert [row.status for row in run.rows] == [end[0] for end in ENDS]
    assert [row.verdict or None for row in run.rows] == [end[1] for end in ENDS]
    assert not run.live
    assert run.notes == ()
    assert run.begun[0].time == "2026-01-02T03:04:05+00:00"


def test_a_folder_of_instances_alone_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "report.eval" / "instances" / "owner__shop-1").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="goes with --evaluation"):
        read(tmp_path / "report.eval")


def test_the_figures_in_words_have_no_plural_of_one(folder: Path) -> None:
    words = report_in_words(summarise(read(folder)))
    assert ", tests red 1, " in words


def test_a_row_says_what_was_paid_and_why_it_ended(folder: Path) -> None:
    rows = read(folder, **{"owner__shop-0": True}).rows
    first, applied = rows[0], rows[6]
    assert first.project == "owner/shop"
    assert first.title == "Basket.total_price is one too low"
    assert (first.calls, first.resolved, first.cause.group) == (1, True, "verified")
    assert first.cost_usd is not None
    assert first.cost_usd > 0
    assert first.seconds is not None
    assert [stage.name for stage in first.stages][-1] == "validate"
    assert applied.cause.kind == "no-match"
    assert applied.why.startswith("edit 1 (shop/basket.py)")


def test_the_summary_adds_up(folder: Path) -> None:
    run = read(folder, **{"owner__shop-0": True, "acme__ledger-1": False})
    found = summarise(run)
    assert found.instances == len(ENDS)
    assert sum(found.statuses.values()) == sum(c.count for c in found.causes) == len(ENDS)
    assert (found.finished, found.accepted, found.verified) == (10, 2, 1)
    assert (found.evaluated, found.resolved) == (2, 1)
    crossed = {line.verdict: (line.resolved, line.unresolved) for line in found.verdict_by_resolved}
    assert crossed["verified"] == (1, 0)
    assert crossed["not-regressed"] == (0, 1)
    assert found.cost_usd == pytest.approx(sum(row.cost_usd or 0 for row in run.rows))
    assert found.held_usd == 0.25
    assert found.calls == sum(row.calls for row in run.rows)


def test_attempts_add_up_and_the_last_one_decides(tmp_path: Path) -> None:
    made = RunFolder(tmp_path / "r")
    name = made.task(1).instance_id
    paid = Settled(id=name, sha256="a", how="paid", cost_usd=0.5, input_tokens=3, output_tokens=1)
    stage = StageEntry(id=name, attempt=1, stage="call", seconds=1.0, summary="first")
    made.add(
        Started(id=name, attempt=1),
        paid,
        stage,
        Failed(id=name, attempt=1, blame="crash", status=Status.CRASHED, reason="boom"),
        Started(id=name, attempt=2),
        paid.model_copy(update={"how": "dropped", "cost_usd": None}),
        stage.model_copy(update={"attempt": 2, "summary": "second"}),
        Failed(id=name, attempt=2, blame="stopped", status=Status.INTERRUPTED, reason="stopped"),
    )
    row = read(made.write()).rows[0]
    assert (row.status, row.attempts, row.calls) == ("stopped", 2, 1)
    assert row.cost_usd is None
    assert row.stages == (Stage("call", 1.0, "second"),)


def test_broken_files_are_told_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    make_run(folder, 3)
    (folder / "instances/owner__shop-0/result.json").write_text("{")
    (folder / "instances/acme__ledger-1/result.json").write_text('{"status": "accepted", "x": 1}')
    with (folder / "tasks.jsonl").open("a") as tasks:
        tasks.write("no task\n")
    with (folder / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"event": "new-kind"}\n{"event": "run", "torn')
    (folder / "run.json").unlink()
    run = read(folder)
    assert [row.status for row in run.rows] == ["accepted", "accepted", "unverified"]
    assert len(run.notes) == 4
    assert run.notes[0].startswith("journal.jsonl: 1 lines")


def test_without_a_journal_the_folders_speak(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    make_run(folder, 2)
    for name in ("journal.jsonl", "tasks.jsonl"):
        (folder / name).unlink()
    run = read(folder)
    assert [row.id for row in run.rows] == ["acme__ledger-1", "owner__shop-0"]
    assert [row.status for row in run.rows] == ["accepted", "accepted"]
    assert run.rows[1].project == "owner/shop"


def test_absurd_numbers_are_no_measurements(tmp_path: Path) -> None:
    made = RunFolder(tmp_path / "r")
    name = made.task(1).instance_id
    made.add(Started(id=name, attempt=1))
    folder = made.write()
    line = {"event": "settled", "id": name, "sha256": "a", "how": "paid"}
    with (folder / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({**line, "cost_usd": 1e300, "input_tokens": 10**400}) + "\n")
        finished = {"event": "finished", "id": name, "attempt": 1, "status": "accepted"}
        journal.write(json.dumps({**finished, "verdict": "verified", "seconds": math.nan}) + "\n")
    row = read(folder).rows[0]
    assert (row.cost_usd, row.seconds) == (None, None)
    assert row.input_tokens <= 10**15
    assert summarise(read(folder)).cost_usd is None


def test_one_solve_is_a_run_of_one(tmp_path: Path, folder: Path) -> None:
    given = folder / "instances/owner__shop-0/result.json"
    run = load(given, None, Cleaner())
    assert run.single is not None
    assert [row.id for row in run.rows] == ["result"]
    assert run.rows[0].cause.group == "verified"
    assert run.rows[0].seconds == pytest.approx(sum(run.single.timings.values()))


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    for path, words in (
        (tmp_path, "not the folder of a run"),
        (tmp_path / "x.json", "not the result of a solve"),
        (tmp_path / "gone", "No such file"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            load(path, None, Cleaner())


def test_runs_that_go_on_are_counted(tmp_path: Path) -> None:
    made = RunFolder(tmp_path / "r")
    made.add(RunEnded(seconds=61.5))
    made.add(RunStarted(version="0.2.0", time="later", instances=0))
    assert [begun.seconds for begun in read(made.write()).begun] == [61.5, None]
    found = summarise(read(made.write()))
    assert found.versions == ("0.1.0", "0.2.0")
    assert found.begun == ("2026-01-02T03:04:05+00:00", "later")
    assert replace(read(tmp_path / "r"), live=True).live
