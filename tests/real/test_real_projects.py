"""`agent solve` on real projects with their real bugs; only the model is scripted.

The reply is made from the fetched sources and sent whatever the prompt says; that the prompt showed
the code that the fix touches is asserted apart. A language whose tools are missing is skipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.errors import Status
from tests.real.languages import LANGUAGE_PROJECTS, LanguageProject
from tests.real.project import Project, RealProject
from tests.real.projects import JINJA2, NUM2WORDS, PROJECTS
from tests.support.behaviours import ChatRequest
from tests.support.fingerprint import fingerprint
from tests.support.scripted_provider import ScriptedProvider
from tests.support.solve_command import (
    Solved,
    apply_in_fresh_clone,
    changed_files,
    require_sandbox,
    shown_files,
    solve,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

LIMIT = 600.0  # seconds for one run; compilers start cold in every run
Checkout = Callable[[Project], Path]


@dataclass(frozen=True, slots=True)
class Run:
    """One project solved once: what came back and what was sent."""

    project: Project
    repository: Path
    solved: Solved
    last_request: ChatRequest  # that for the patch; a locating call may come before it
    untouched: bool


@pytest.fixture(scope="module", params=(*PROJECTS, *LANGUAGE_PROJECTS), ids=lambda one: one.name)
def run(
    request: pytest.FixtureRequest, checkout: Checkout, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Each project is solved once; the tests look at it from several sides."""
    require_sandbox()
    project: Project = request.param
    repository = checkout(project)
    home = tmp_path_factory.mktemp("home")
    before = fingerprint(repository)
    with ScriptedProvider([project.make_reply(repository)]) as provider:
        solved = solve(_issue(project, home), repository, provider, home=home, limit=LIMIT)
    assert provider.chats, solved.explain()
    untouched = fingerprint(repository) == before
    return Run(project, repository, solved, provider.chats[-1], untouched)


def test_fix_is_verified(run: Run) -> None:
    result = run.solved.result
    assert (result.status, result.verdict) == (Status.ACCEPTED, "verified"), run.solved.explain()
    assert run.solved.exit_code == 0
    (attempt,) = result.attempts
    assert attempt.kind == "one-shot"
    assert attempt.validation is not None
    if isinstance(run.project, LanguageProject):
        assert attempt.validation.runner.startswith(f"{run.project.runner}: ")
        assert f" {run.project.reproduction_path}::" in attempt.validation.reason


def test_prompt_showed_the_lines_that_the_fix_replaces(run: Run) -> None:
    prompt, project = run.last_request.prompt, run.project
    hidden = [c for c in project.changes if c.edit(run.repository)["search"] not in prompt]
    if isinstance(project, RealProject):
        assert not set(project.gold_files) - shown_files(prompt), run.solved.result.receipt
        functions = {change.enclosing(run.repository) for change in hidden}
        assert functions <= project.hard_to_find, run.solved.result.receipt
    else:
        assert not hidden, run.solved.result.receipt


def test_diff_applies_and_is_exactly_the_fix(run: Run, tmp_path: Path) -> None:
    clone = apply_in_fresh_clone(run.solved.result.diff, run.repository, tmp_path)
    assert changed_files(clone) == set(run.project.gold_files)
    if isinstance(run.project, RealProject):
        expected = run.project.fixed(run.repository)
        assert {path: (clone / path).read_bytes() for path in expected} == expected


def test_repository_is_untouched(run: Run) -> None:
    assert run.untouched
    status = ["git", "status", "--porcelain"]
    assert subprocess.run(status, cwd=run.repository, capture_output=True).stdout == b""


def test_related_tests_were_run(run: Run) -> None:
    validation = run.solved.result.attempts[-1].validation
    assert validation is not None
    selected = {test.path for test in validation.selected}
    assert selected & set(run.project.related_tests), run.solved.explain()
    assert validation.newly_failing == ()


def test_files_have_the_line_ends_that_this_suite_is_about(checkout: Checkout) -> None:
    (path,) = NUM2WORDS.gold_files
    content = (checkout(NUM2WORDS) / path).read_bytes()
    assert content.count(b"\r\n") == content.count(b"\n") > 0


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_fix_lies_in_the_gold_functions(project: RealProject, checkout: Checkout) -> None:
    tree = checkout(project)
    touched = {change.enclosing(tree) for change in project.changes} - {None}
    assert touched == set(project.gold_functions)


def test_one_fix_spans_files_and_one_lies_under_src() -> None:
    assert len(JINJA2.gold_files) == 2
    assert JINJA2.source_root == "src"


def _issue(project: Project, folder: Path) -> Path:
    path = folder / "issue.md"
    path.write_text(project.issue, "utf-8")
    return path
