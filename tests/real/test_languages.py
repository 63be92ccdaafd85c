"""`agent solve` on real bugs of projects in JavaScript, TypeScript, Go, Rust and Java.

Only the model is scripted: it sends the fix whatever the prompt says; that the prompt shows the
lines that the fix replaces is asserted apart. A language whose tools are missing is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.errors import Status
from tests.real import sdist
from tests.real.languages import LANGUAGE_PROJECTS, LanguageProject
from tests.real.registries import fetch_release, install_npm_packages
from tests.support.behaviours import ChatRequest, Good
from tests.support.fingerprint import fingerprint
from tests.support.scripted_provider import ScriptedProvider
from tests.support.solve_command import (
    Solved,
    apply_in_fresh_clone,
    changed_files,
    require_sandbox,
    solve,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

_LIMIT = 600.0  # seconds for one run; compilers start cold in every run
_STORE = Path.home() / ".m2" / "repository"
_ENVIRONMENT = dict(os.environ)  # before each test hides the user's proxies


@dataclass(frozen=True, slots=True)
class Run:
    """One project solved once."""

    project: LanguageProject
    repository: Path
    solved: Solved
    request: ChatRequest
    untouched: bool


@pytest.fixture(scope="module", params=LANGUAGE_PROJECTS, ids=lambda project: project.name)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    require_sandbox()
    project: LanguageProject = request.param
    _require_tools(project)
    home = tmp_path_factory.mktemp("home")
    repository = _repository(project, tmp_path_factory.mktemp(project.name))
    if project.maven:
        _copy_store(home / ".m2" / "repository")
    before = fingerprint(repository)
    issue = home / "issue.md"
    issue.write_text(project.issue, "utf-8")
    with ScriptedProvider([Good(project.make_reply(repository))]) as provider:
        solved = solve(issue, repository, provider, home=home, limit=_LIMIT)
    assert provider.chats, solved.explain()
    return Run(project, repository, solved, provider.chats[-1], fingerprint(repository) == before)


def _require_tools(project: LanguageProject) -> None:
    missing = [name for name in project.programs if shutil.which(name) is None]
    missing += [
        f"{path} in Maven's store" for path in project.maven if not (_STORE / path).is_dir()
    ]
    if missing:
        pytest.skip(f"{project.runner} needs {', '.join(missing)}")


def _copy_store(target: Path) -> None:
    """Link Maven's store file by file: the sandbox's user may not enter another user's folder."""
    for folder, _, files in os.walk(_STORE):
        place = target / Path(folder).relative_to(_STORE)
        place.mkdir(parents=True)
        for name in files:
            try:
                os.link(Path(folder, name), place / name)
            except OSError:
                shutil.copyfile(Path(folder, name), place / name)


def _repository(project: LanguageProject, folder: Path) -> Path:
    """The release, committed with what it lacks; skips where it cannot be fetched."""
    try:
        root = fetch_release(project.release, _ENVIRONMENT, folder)
        for path, text in project.added.items():
            (root / path).write_text(text, "utf-8")
        sdist.commit(root)
        install_npm_packages(project.packages, root, _ENVIRONMENT)
    except sdist.Unavailable as error:
        if _ENVIRONMENT.get("PATCHSHOT_REQUIRE_REAL") == "1":
            pytest.fail(str(error))
        pytest.skip(f"cannot fetch {project.release.filename}: {error}")
    return root


def test_fix_is_verified_by_the_framework_of_the_project(run: Run) -> None:
    result = run.solved.result
    assert (result.status, result.verdict) == (Status.ACCEPTED, "verified"), run.solved.explain()
    assert run.solved.exit_code == 0
    (attempt,) = result.attempts
    assert attempt.validation is not None
    assert attempt.validation.runner.startswith(f"{run.project.runner}: ")


def test_the_reproduction_is_named_by_its_file_or_package(run: Run) -> None:
    validation = run.solved.result.attempts[-1].validation
    assert validation is not None
    place = "." if run.project.runner == "go" else run.project.reproduction_path
    assert f" {place}::" in validation.reason


def test_prompt_showed_the_lines_that_the_fix_replaces(run: Run) -> None:
    if run.project.hard_to_find:
        pytest.skip("the issue gives no clue to the changed file")
    for edit in run.project.edits(run.repository):
        assert edit["search"] in run.request.prompt, run.solved.result.receipt


def test_related_tests_were_run(run: Run) -> None:
    validation = run.solved.result.attempts[-1].validation
    assert validation is not None
    assert {test.path for test in validation.selected} & set(run.project.related_tests)
    assert validation.newly_failing == ()


def test_diff_applies_and_changes_the_files_of_the_fix_alone(run: Run, tmp_path: Path) -> None:
    clone = apply_in_fresh_clone(run.solved.result.diff, run.repository, tmp_path)
    assert changed_files(clone) == {change.path for change in run.project.changes}


def test_repository_is_untouched(run: Run) -> None:
    assert run.untouched
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=run.repository, capture_output=True, check=True
    )
    assert status.stdout == b""
