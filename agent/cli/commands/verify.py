"""`agent verify`: judge a patch by the project's tests before and after it, without a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click

from agent.cli.commands.apply import read_reply
from agent.cli.commands.common import guarded, load_problem, make_redactor, print_json, reporting
from agent.cli.commands.solve import in_words
from agent.cli.options import (
    CHECK_SETTINGS,
    json_option,
    known_options,
    project_option,
    quiet_option,
    repo_options,
    scope_option,
)
from agent.cli.options import command as declare
from agent.errors import ConfigurationError, Status
from agent.shared.terminal import say


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """Arguments of `agent verify` that are not settings."""

    diff: str
    problem: str | None
    test: str | None
    repo: Path
    commit: str | None
    dirty: str
    json: bool
    quiet: bool
    path: Path | None
    project: str | None
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    tests_from: Path | None


def run(request: VerifyRequest, flags: Mapping[str, Any]) -> int:
    """Judge the patch, print the verdict, and return the exit code."""
    return guarded(lambda: _run(request, flags), json=request.json)


def _run(request: VerifyRequest, flags: Mapping[str, Any]) -> int:
    from agent.api import verify

    if request.diff == "-" == request.problem:
        raise ConfigurationError("--diff and --problem cannot both be read from stdin")
    patch = read_reply(request.diff, "--diff")
    problem = load_problem(request.problem).text if request.problem else ""
    with reporting(quiet=request.quiet) as reporter:
        result = verify(
            patch,
            request.repo,
            problem=problem,
            test=request.test,
            commit=request.commit,
            dirty=request.dirty,  # type: ignore[arg-type]
            on_event=reporter,
            path=request.path,
            project=request.project,
            fail_to_pass=request.fail_to_pass,
            pass_to_pass=request.pass_to_pass,
            tests_from=request.tests_from,
            **flags,
        )
    accept = bool(flags.get("accept_unverified"))
    result = result.as_printed(accept_unverified=accept, redact=make_redactor())
    if request.json:
        print_json(result)
    if not request.quiet:
        notes = (a.validation.notes for a in result.attempts if a.validation is not None)
        for note in chain.from_iterable(notes):
            say(f"note: {note}")
    if not request.quiet or result.status is not Status.ACCEPTED:
        say(in_words(result, has_patch=False))
    return result.exit_code


@declare(
    "verify",
    settings=CHECK_SETTINGS,
    ending="""
    Example, with a diff made by `git diff main > fix.diff`:
      agent verify --diff fix.diff --commit main --problem issue.md

    The patch may bring the test that shows the fault. --test names it if there
    are several. Exit codes are those of `agent solve`.
    """,
)
@click.option("--diff", required=True, help="The patch: a file, or `-` for stdin.")
@click.option("--problem", help="The issue, which helps to choose tests: a file, `-`, or a URL.")
@click.option("--test", metavar="PATH", help="The test file of the patch that shows the fault.")
@repo_options
@scope_option
@known_options
@project_option
@json_option
@quiet_option
def command(flags: Mapping[str, Any], **given: Any) -> int:
    """Judge a patch: apply it in the sandbox and run the tests before and after; no model call."""
    return run(VerifyRequest(**given), flags)
