from __future__ import annotations

from pathlib import Path

import pytest

from agent.batch import Failed, Started
from agent.errors import ConfigurationError, Status
from agent.report import Cleaner, Evaluated, ReportRun, RunFiles, load, summarise
from tests.support.run_folders import ENDS, RunFolder, make_run


def read(folder: Path, **evaluation: bool) -> ReportRun:
    verdicts = {name: Evaluated(resolved=done) for name, done in evaluation.items()}
    return load(folder, verdicts, Cleaner())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("run") / "preds.run"
    make_run(root)
    return root


def test_every_end_is_told_in_the_order_of_the_data_set(folder: Path) -> None:
    run = read(folder)
    assert [row.status for row in run.rows] == [end[0] for end in ENDS]
    assert [row.verdict or None for row in run.rows] == [end[1] for end in ENDS]
    assert not run.live
    assert run.notes == ()
    assert run.begun == ("2026-01-02T03:04:05+00:00",)


def test_a_row_says_what_was_paid_and_why_it_ended(folder: Path) -> None:
    rows = read(folder, **{"owner__shop-0": True}).rows
    first, applied = rows[0], rows[6]
    assert first.project == "owner/shop"
    assert first.title == "Basket.total_price is one too low"
    assert (first.usage.calls, first.resolved, first.group) == (1, True, "verified")
    assert first.usage.cost_usd is not None
    assert first.usage.cost_usd > 0
    assert first.seconds is not None
    assert applied.kind == "no-match"
    assert applied.why.startswith("edit 1 (shop/basket.py)")


def test_the_summary_adds_up(folder: Path) -> None:
    run = read(folder, **{"owner__shop-0": True, "acme__ledger-1": False})
    found = summarise(run)
    assert found.instances == len(ENDS)
    assert sum(found.statuses.values()) == sum(c.count for c in found.causes) == len(ENDS)
    assert (found.finished, found.accepted, found.verified) == (10, 2, 1)
    assert (found.evaluated, found.resolved) == (2, 1)
    assert found.calls == sum(row.usage.calls for row in run.rows)


def test_attempts_add_up_and_the_last_one_decides(tmp_path: Path) -> None:
    made = RunFolder(tmp_path / "r")
    name = made.task(1).instance_id
    made.add(
        Started(id=name, attempt=1),
        Failed(id=name, attempt=1, blame="crash", status=Status.CRASHED, reason="boom"),
        Started(id=name, attempt=2),
        Failed(id=name, attempt=2, blame="stopped", status=Status.INTERRUPTED, reason="stopped"),
    )
    row = read(made.write()).rows[0]
    assert (row.status, row.attempts) == ("stopped", 2)


def test_broken_files_are_told_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    make_run(folder, 3)
    (folder / "instances/owner__shop-0/result.json").write_text("{")
    (folder / "instances/acme__ledger-1/result.json").write_text('{"status": "accepted", "x": 1}')
    with (folder / "tasks.jsonl").open("a") as tasks:
        tasks.write("no task\n")
    with (folder / "journal.jsonl").open("ab") as journal:
        journal.write(
            b'{"event": "new-kind"}\n{"event": "finished", "id": "x", "attempt": 1, '
            b'"status": "accepted", "verdict": null, "seconds": NaN}\n{"event": "run", "torn'
        )
    (folder / "run.json").unlink()
    run = read(folder)
    assert [row.status for row in run.rows] == ["accepted", "accepted", "unverified"]
    assert len(run.notes) == 4
    assert run.notes[0].startswith("journal.jsonl: 2 lines")


def test_one_solve_is_a_run_of_one(folder: Path) -> None:
    run = load(folder / "instances/owner__shop-0/result.json", None, Cleaner())
    assert run.single
    (row,) = run.rows
    assert (row.id, row.group) == ("result", "verified")
    assert row.record is not None
    assert row.seconds == pytest.approx(sum(row.record.timings.values()))


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "report.eval" / "instances" / "owner__shop-1").mkdir(parents=True)
    for path, words in (
        (tmp_path, "not the folder of a run"),
        (tmp_path / "report.eval", "goes with --evaluation"),
        (tmp_path / "x.json", "not the result of a solve"),
        (tmp_path / "gone", "No such file"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            load(path, None, Cleaner())


def test_only_regular_files_below_the_folder_are_read(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for place in (root, outside):
        place.mkdir()
        (place / "a").write_text("text")
    (root / "link").symlink_to(outside / "a")
    (root / "folder").symlink_to(outside)
    files = RunFiles(root)
    assert files.read("a") == b"text"
    for parts in (("link",), ("folder", "a"), ("..", "outside", "a"), ("gone",), ("folder",)):
        assert files.read(*parts) is None
        assert list(files.lines(*parts)) == []
