"""The corpus of patches that fix nothing: which of them are VERIFIED.

Only those are that are documented as limits.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.types import Verdict
from tests.attack.noop.corpus import NO_OPS, NoOp
from tests.attack.noop.projects import PROJECTS
from tests.attack.noop.running import Place, fixed, make_place, tried
from tests.attack.noop.tables import HONEST, TRICKS, TableRow
from tests.support.maven import home_with_store

_MOST_LIMITS = 3
_PROGRAMS = {
    "tally": "make",
    "slug": "node",
    "script": "npm",
    "crate": "cargo",
    "go": "go",
    "java": "mvn",
}


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory, bwrap_works: None) -> Place:
    return make_place(tmp_path_factory.mktemp("noop"))


@pytest.fixture(scope="session")
def maven_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_store(tmp_path_factory.mktemp("maven"))


@pytest.fixture
def needs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Skips where a project's program is missing; Java's packages come from a home of their own."""

    def check(project: str) -> None:
        program = _PROGRAMS.get(project)
        if program and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
        if project == "java":
            monkeypatch.setenv("HOME", str(request.getfixturevalue("maven_home")))

    return check


@pytest.mark.parametrize("noop", NO_OPS, ids=lambda noop: f"{noop.works}: {noop.name}")
def test_it_is_not_verified_unless_that_is_a_known_limit(
    noop: NoOp, place: Place, needs: Callable[[str], None]
) -> None:
    needs(noop.project)
    verdict, reason = tried(noop, place)
    assert (verdict == Verdict.VERIFIED.value) == bool(noop.limit), f"{verdict}: {reason}"


@pytest.mark.parametrize("project", PROJECTS)
def test_the_honest_fix_is(project: str, place: Place, needs: Callable[[str], None]) -> None:
    """The control: what deserves it gets VERIFIED in each project whose runner names its tests."""
    needs(project)
    verdict, reason = fixed(project, place)
    opaque = PROJECTS[project].opaque
    assert verdict == (Verdict.NOT_REGRESSED if opaque else Verdict.VERIFIED).value, reason


@pytest.mark.parametrize("row", TRICKS, ids=lambda row: row.name)
def test_a_trick_of_the_table_is_not_verified(row: TableRow, place: Place, tmp_path: Path) -> None:
    _needs_program(row)
    verdict, reason = row.tried(place, tmp_path)
    assert (verdict == Verdict.VERIFIED.value) == row.special, f"{verdict}: {reason}"


@pytest.mark.parametrize("row", HONEST, ids=lambda row: row.name)
def test_an_honest_fix_of_the_table_is(row: TableRow, place: Place, tmp_path: Path) -> None:
    _needs_program(row)
    verdict, reason = row.tried(place, tmp_path)
    assert verdict == Verdict.VERIFIED.value, reason


def _needs_program(row: TableRow) -> None:
    if row.program and shutil.which(row.program) is None:
        pytest.skip(f"{row.program} is not installed")


def test_the_limits_are_few() -> None:
    assert sum(bool(noop.limit) for noop in NO_OPS) <= _MOST_LIMITS
    assert len({(noop.works, noop.name) for noop in NO_OPS}) == len(NO_OPS) >= 60
