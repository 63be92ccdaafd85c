"""`agent report` on runs that `agent batch` has really made, and on what is no run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.batch_command import RIGHT, WRONG, Bench
from tests.support.behaviours import MALFORMED
from tests.support.scripted_provider import ScriptedProvider
from tests.support.user import User

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """It has `preds.run`: a good reply, one that does not match, one that is none."""
    with ScriptedProvider([RIGHT, WRONG, MALFORMED]) as provider:
        bench = Bench(tmp_path_factory.mktemp("batch"), provider)
        bench.rows(*map(bench.row, (1, 2, 3)), bench.row(4, base_commit="f" * 40))
        bench.variables["PATCHSHOT_PRICES"] = "1,10"
        assert bench.batch("--repairs", "0")[1]["finished"] == 3, bench.stderr
    return bench


def test_a_run_of_agent_batch_is_reported_with_its_figures(bench: Bench) -> None:
    figures = bench.read("report", "preds.run")
    assert (figures["instances"], figures["finished"], figures["accepted"]) == (4, 3, 1)
    assert [(c["group"], c["kinds"]) for c in figures["causes"]] == [
        ("unverified", {}),
        ("not applied", {"no-match": 1}),
        ("unparseable", {"malformed": 1}),
        ("unusable row", {}),
    ]
    assert figures["calls"] == 3
    assert figures["cost_usd"] > 0
    assert figures["seconds"] > 0
    page = (bench.home / "preds.run/report.html").read_text()
    assert figures["bytes"] == len(page.encode())
    for text in ("total_price is 1 too low", "shop/basket.py", "does not", *bench.predictions()):
        assert text in page


def test_one_solve_is_reported_too(bench: Bench, tmp_path: Path) -> None:
    result = bench.home / "preds.run/instances/owner__shop-1/result.json"
    shutil.copy(result, tmp_path / "result.json")
    assert "report in report.html" in User(tmp_path).ok("report", "result.json")
    page = (tmp_path / "report.html").read_text()
    assert "one solve" in page
    assert "One too low." in page
    assert 'table class="rows"' not in page


def test_a_file_that_is_no_report_is_not_replaced_unasked(bench: Bench, tmp_path: Path) -> None:
    user, run = User(tmp_path), str(bench.home / "preds.run")
    page = bench.home / "preds.run/report.html"
    page.write_text("my own page")
    assert user.run("report", run).returncode == 2
    assert page.read_text() == "my own page"
    user.ok("report", run, "--output", str(page))
    user.ok("report", run)  # one of ours is replaced
    assert user.run("report", run, "-o", "no/such/folder.html").returncode == 2
    assert not list(tmp_path.glob(".report*"))


def test_the_same_run_gives_the_same_bytes(bench: Bench) -> None:
    for seed in ("1", "2"):
        bench.ok("report", "preds.run", "-o", f"{seed}.html", PYTHONHASHSEED=seed)
    first, second = ((bench.home / f"{seed}.html").read_bytes() for seed in ("1", "2"))
    assert first == second
