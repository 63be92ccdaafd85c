"""One browser and a few reports for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.agent_process import call_agent
from tests.support.browser import open_browser
from tests.support.hostile_run import make_hostile_run
from tests.support.run_folders import make_run, write_evaluation

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")  # an event loop runs as long: not one of other tests may start then
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty instances that end in all ways, evaluated."""
    folder = tmp_path_factory.mktemp("report")
    made = make_run(folder / "preds.run", 40)
    evaluation = write_evaluation(folder / "evaluation.json", made.resolved)
    return write(folder / "preds.run", folder / "report.html", evaluation)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand instances."""
    folder = tmp_path_factory.mktemp("large")
    make_run(folder / "preds.run", 1000)
    return write(folder / "preds.run", folder / "report.html")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose every text attacks who reads it."""
    folder = tmp_path_factory.mktemp("hostile")
    evaluation = make_hostile_run(folder / "preds.run", folder / "evaluation.json")
    return write(folder / "preds.run", folder / "report.html", evaluation)


def write(folder: Path, output: Path, evaluation: Path | None = None) -> Path:
    """A report."""
    given = {} if evaluation is None else {"evaluation": evaluation}
    assert call_agent("report", folder, "--json", output=output, open="no", **given) == 0
    return output
