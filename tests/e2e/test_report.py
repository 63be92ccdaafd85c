"""`agent report` on runs that `agent batch` has really made, and on what is no run."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import run_agent
from tests.support.behaviours import Good, Malformed
from tests.support.evaluation import bare_repository, dataset_row, write_dataset
from tests.support.scripted_provider import ScriptedProvider

Agent = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]


def _edit(search: str) -> str:
    change = {"path": "shop/basket.py", "search": search, "replace": "self.items)"}
    return json.dumps({"thought": "One too low.", "edits": [change]})


def _run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return run_agent(*arguments, home=folder, limit=200, **settings)


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `preds.run`: a good reply, one that does not match, one that is none."""
    folder = tmp_path_factory.mktemp("batch")
    commit = bare_repository(folder / "repos")
    script = [Good(_edit("self.items) - 1")), Good(_edit("no such text")), Malformed()]
    rows = [dataset_row(commit, number) for number in (1, 2, 3)]
    write_dataset(folder / "d.jsonl", [*rows, dataset_row("f" * 40, 4)])
    with ScriptedProvider(script) as provider:
        done = _run(
            folder, "batch", "--dataset", "d.jsonl", "--repos", "repos", "--output", "preds.json",
            "--embed", "off", "--no-tests", "--accept-unverified", "--no-iterative",
            "--repairs", "0", "--json",
            PATCHSHOT_BASE_URL=provider.base_url, PATCHSHOT_API_KEY="test-key-that-is-long",
            PATCHSHOT_MODEL="scripted", PATCHSHOT_PRICES="1,10",
        )  # fmt: skip
    assert json.loads(done.stdout)["finished"] == 3, done.stderr
    return folder


def test_a_run_of_agent_batch_is_reported_with_its_figures(batch: Path) -> None:
    summary = json.loads((batch / "preds.json").read_text())
    done = _run(batch, "report", "preds.run", "--json")
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
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
    page = (batch / "report.html").read_text()
    assert figures["bytes"] == len(page.encode())
    for text in ("total_price is one too low", "shop/basket.py", "does not", *summary):
        assert text in page


def test_one_solve_is_reported_too(batch: Path, tmp_path: Path) -> None:
    result = batch / "preds.run/instances/owner__shop-1/result.json"
    shutil.copy(result, tmp_path / "result.json")
    done = _run(tmp_path, "report", "result.json")
    assert done.returncode == 0, done.stderr
    assert "report in report.html" in done.stdout
    page = (tmp_path / "report.html").read_text()
    assert "one solve" in page
    assert "One too low." in page
    assert 'table class="rows"' not in page


def test_a_file_that_is_no_report_is_not_replaced_unasked(batch: Path, tmp_path: Path) -> None:
    run = str(batch / "preds.run")
    (tmp_path / "report.html").write_text("my own page")
    done = _run(tmp_path, "report", run)
    assert done.returncode == 2
    assert (tmp_path / "report.html").read_text() == "my own page"
    assert _run(tmp_path, "report", run, "--output", "report.html").returncode == 0
    assert _run(tmp_path, "report", run).returncode == 0  # one of ours is
    assert _run(tmp_path, "report", run, "-o", "no/such/folder.html").returncode == 2
    assert not list(tmp_path.glob(".report*"))


def test_the_same_run_gives_the_same_bytes(batch: Path) -> None:
    pages = []
    for seed in ("1", "2"):
        done = _run(batch, "report", "preds.run", "-o", f"{seed}.html", PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        pages.append((batch / f"{seed}.html").read_bytes())
    assert pages[0] == pages[1]
