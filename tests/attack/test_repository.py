"""Hostile repositories: everything that the agent does with one runs nothing and shows nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.attack.repository_cases import REPOSITORY_CASES, RepositoryCase
from tests.conftest import run_git
from tests.support.attack_repository import (
    SECRET,
    everything_the_agent_does,
    make_hostile_base,
    plain_git,
)
from tests.support.fingerprint import fingerprint
from tests.support.sandboxes import require_bwrap

# The whole of reading, copying and running; a pipe that is opened would block for ever.
_MOST_SECONDS = 60.0

_BY_CASE = [
    pytest.param(case, id=case.name, marks=pytest.mark.attack_case(case.name))
    for case in REPOSITORY_CASES
]


@pytest.mark.parametrize("case", _BY_CASE)
def test_nothing_of_it_runs_and_nothing_leaks(case: RepositoryCase, tmp_path: Path) -> None:
    require_bwrap()
    hostile = make_hostile_base(tmp_path)
    case.plant(hostile)
    before = fingerprint(hostile.root / case.watched)
    started = time.monotonic()
    seen = everything_the_agent_does(hostile, hostile.root / case.below)
    assert time.monotonic() - started < _MOST_SECONDS
    assert hostile.fired() == []
    assert SECRET.encode() not in seen
    assert fingerprint(hostile.root / case.watched) == before


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in REPOSITORY_CASES if case.trigger]
)
def test_with_plain_git_it_works(case: RepositoryCase, tmp_path: Path) -> None:
    hostile = make_hostile_base(tmp_path)
    case.plant(hostile)
    output = plain_git(hostile, *case.trigger)
    assert hostile.fired() or SECRET.encode() in output, output


def test_hard_links_would_carry_the_attack_into_the_users_objects(tmp_path: Path) -> None:
    """The control of that case: a local clone shares files with the original."""
    hostile = make_hostile_base(tmp_path)
    before = fingerprint(hostile.root / ".git" / "objects")
    run_git(tmp_path, "clone", "-q", "--local", str(hostile.root), "clone")
    for file in (tmp_path / "clone" / ".git" / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o644)
            file.write_text("owned")
    assert fingerprint(hostile.root / ".git" / "objects") != before
