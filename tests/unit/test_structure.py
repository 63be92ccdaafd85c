"""The size of the house: a budget of lines for each package, and names with one meaning.

The budgets are what the packages have; whoever needs more lines finds them by deleting, and whoever
deletes lowers the budget. GOALS are the sums that the house is to reach.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agent.settings import Settings
from benchmarks.structure import loaded_by_solve, modules, public_classes

ROOT = Path(__file__).resolve().parents[2]

GOALS = {"lines": 58_000, "modules": 300, "modules that solve loads": 190, "test lines": 50_000}

LINES = {
    "agent/api.py agent/errors.py agent/__init__.py agent/__main__.py agent/patchshot.py": 510,
    "agent/batch": 1_660,
    "agent/cli": 3_490,
    "agent/datasets": 510,
    "agent/evaluation": 2_000,
    "agent/iterative": 1_030,
    "agent/llm": 3_600,
    "agent/miner": 900,
    "agent/patching": 5_170,
    "agent/report": 890,
    "agent/repository": 2_490,
    "agent/results": 1_800,
    "agent/retrieval": 8_150,
    "agent/run": 2_760,
    "agent/search": 4_420,
    "agent/settings": 730,
    "agent/shared": 1_870,
    "agent/types": 920,
    "agent/verify": 9_460,
    "agent/wiring": 1_240,
    "sandbox": 4_350,
}
MOST_MODULES = 272
MOST_LOADED = 190
MOST_TEST_LINES = 49_270
MOST_BENCHMARK_LINES = 5_500
MOST_FIELDS = MOST_OPTIONS = 55
MOST_DEPENDENCIES = 22


def lines_of(*places: str) -> int:
    files = [
        file
        for place in places
        for file in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    ]
    return sum(file.read_text("utf-8").count("\n") for file in files)


@pytest.mark.parametrize("places", LINES)
def test_a_package_stays_within_its_lines(places: str) -> None:
    assert lines_of(*places.split()) <= LINES[places]


def test_the_sums_stay_within_their_budgets() -> None:
    assert len(modules()) <= MOST_MODULES
    assert lines_of("tests") <= MOST_TEST_LINES
    assert lines_of("benchmarks", "training") <= MOST_BENCHMARK_LINES


def test_every_package_has_a_budget() -> None:
    budgeted = {place for places in LINES for place in places.split()}
    entries = {
        f"agent/{entry.name}"
        for entry in (ROOT / "agent").iterdir()
        if entry.suffix == ".py" or (entry / "__init__.py").exists()
    }
    assert entries <= budgeted


def test_agent_solve_loads_few_modules() -> None:
    assert len(loaded_by_solve()) <= MOST_LOADED


def test_settings_and_options_are_few() -> None:
    command = [sys.executable, "-m", "agent", "solve", "--help-all"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    options = re.findall(r"^  (-.*?)(?:  |$)", text, re.MULTILINE)
    assert len(Settings.model_fields) <= MOST_FIELDS
    assert 0 < len(options) <= MOST_OPTIONS


def test_required_dependencies_are_few() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert len(project["dependencies"]) <= MOST_DEPENDENCIES


def test_public_class_names_are_unique() -> None:
    sources = {name: path.read_text("utf-8") for name, path in modules().items()}
    shared = {name: places for name, places in public_classes(sources).items() if len(places) > 1}
    assert shared == {}
