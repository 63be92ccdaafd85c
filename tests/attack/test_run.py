"""Code that runs as a test attacks the machine; checks outside the sandbox find what it reached."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.types import Ended, RunResult
from tests.attack.cases import RunCase
from tests.attack.run_cases import PRELUDE, RUN_CASES
from tests.support.attack_backends import AttackedBackend, plainly

# A run that has not ended this long after its wall clock hangs.
_GRACE_SECONDS = 8.0

_BY_CASE = [
    pytest.param(case, id=case.name.replace(" ", "-"), marks=pytest.mark.attack_case(case.name))
    for case in RUN_CASES
]
_CONTROLS = [pytest.param(case, id=case.name.replace(" ", "-")) for case in RUN_CASES
             if not case.control]  # fmt: skip


def _evidence(case: RunCase, found: list[str], result: RunResult) -> list[str]:
    got = [line for line in result.stdout.split(b"\n") if line.startswith(b"got")]
    problem = case.problem(result)
    return [
        *found,
        *(line.decode("utf-8", "replace") for line in got),
        *([problem] if problem else []),
    ]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can pass, so that only the sandbox can stop an attack."""
    folder = Path(tempfile.mkdtemp(prefix="attacked-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("case", _BY_CASE)
def test_it_is_contained(case: RunCase, backend: AttackedBackend, open_folder: Path) -> None:
    if not case.is_claimed_by(backend.name):
        pytest.skip(f"not claimed: {case.needs}")
    if case.here and backend.sandbox is None:
        pytest.skip("the trap is set in this process")
    parent = open_folder / "workspaces"
    parent.mkdir()
    with case.trap(open_folder) as trap:
        result = backend.run(
            PRELUDE + case.script,
            trap.arguments,
            limits=case.limits,
            report=case.report,
            parent=parent,
        )
        found = trap.evidence(result)
    assert b"tried" in result.stdout or result.ended is not Ended.EXITED, result
    assert _evidence(case, found, result) == [], result
    assert list(parent.iterdir()) == []
    assert result.seconds < case.limits.get("wall_seconds", 20.0) + _GRACE_SECONDS


@pytest.mark.parametrize("case", _CONTROLS)
def test_without_a_sandbox_it_works(case: RunCase, tmp_path: Path) -> None:
    """Shows that the test above can fail: its oracle sees the attack where nothing stops it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with case.trap(tmp_path) as trap:
        result = plainly(PRELUDE + case.script, trap.arguments, folder)
        found = trap.evidence(result)
    assert _evidence(case, found, result) != [], result
