"""`agent solve` on real projects with their real bugs; only the model is scripted.

The reply is made from the fetched sources and sent whatever the prompt says; that the prompt showed
the code that the fix touches is asserted apart. A language whose tools are missing is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.errors import Status
from agent.run.record import RunRecord
from tests.conftest import run_git
from tests.real.languages import LANGUAGE_PROJECTS, LanguageProject
from tests.real.project import Project, RealProject
from tests.real.projects import NUM2WORDS, PROJECTS
from tests.support.fingerprint import fingerprint
from tests.support.sandboxes import require_bwrap
from tests.support.user import User

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

LIMIT = 600.0  # seconds for one run; compilers start cold in every run
Checkout = Callable[[Project], Path]


@dataclass(frozen=True, slots=True)
class Run:
    """One project solved once: what came back and what was sent."""

    project: Project
    repository: Path
    result: RunRecord
    stderr: str
    prompt: str  # that for the patch; a locating call may come before it
    untouched: bool


@pytest.fixture(scope="module", params=(*PROJECTS, *LANGUAGE_PROJECTS), ids=lambda one: one.name)
def run(
    request: pytest.FixtureRequest, checkout: Checkout, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Each project is solved once; the tests look at it from several sides."""
    require_bwrap()
    project: Project = request.param
    repository = checkout(project)
    user = User(tmp_path_factory.mktemp("home"), repository, project.issue)
    before = fingerprint(repository)
    done, provider = user.solve([project.make_reply(repository)], "--json=full", limit=LIMIT)
    assert provider.chats, done.stderr
    result = RunRecord.model_validate_json(done.stdout)
    untouched = fingerprint(repository) == before
    return Run(project, repository, result, done.stderr, provider.chats[-1].prompt, untouched)


def test_fix_is_verified(run: Run) -> None:
    result = run.result
    assert (result.status, result.verdict) == (Status.ACCEPTED, "verified"), run.stderr
    (attempt,) = result.attempts
    assert attempt.kind == "one-shot"
    assert attempt.validation is not None
    if isinstance(run.project, LanguageProject):
        assert attempt.validation.runner.startswith(f"{run.project.runner}: ")
        assert f" {run.project.reproduction_path}::" in attempt.validation.reason


def test_prompt_showed_the_lines_that_the_fix_replaces(run: Run) -> None:
    prompt, project = run.prompt, run.project
    hidden = [c for c in project.changes if c.edit(run.repository)["search"] not in prompt]
    if isinstance(project, RealProject):
        shown = set(re.findall(r"^### (\S+?):L\d+-\d+", prompt, re.MULTILINE))
        assert not set(project.gold_files) - shown, run.result.receipt
        functions = {change.enclosing(run.repository) for change in hidden}
        assert functions <= project.hard_to_find, run.result.receipt
    else:
        assert not hidden, run.result.receipt


def test_diff_applies_and_is_exactly_the_fix(run: Run, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    source = ("-c", "core.autocrlf=false", "clone", "-q", str(run.repository), str(clone))
    run_git(tmp_path, *source)
    (tmp_path / "fix.diff").write_bytes(run.result.diff.encode())
    run_git(clone, "apply", str(tmp_path / "fix.diff"))
    changed = run_git(clone, "status", "--porcelain", "--no-renames", "-uall", "-z").split("\0")
    assert {line[3:] for line in changed if line} == set(run.project.gold_files)
    if isinstance(run.project, RealProject):
        expected = run.project.fixed(run.repository)
        assert {path: (clone / path).read_bytes() for path in expected} == expected


def test_repository_is_untouched(run: Run) -> None:
    assert run.untouched
    assert run_git(run.repository, "status", "--porcelain") == ""


def test_related_tests_were_run(run: Run) -> None:
    validation = run.result.attempts[-1].validation
    assert validation is not None
    selected = {test.path for test in validation.selected}
    assert selected & set(run.project.related_tests), run.stderr
    assert validation.newly_failing == ()


def test_files_have_the_line_ends_that_this_suite_is_about(checkout: Checkout) -> None:
    (path,) = NUM2WORDS.gold_files
    content = (checkout(NUM2WORDS) / path).read_bytes()
    assert content.count(b"\r\n") == content.count(b"\n") > 0
