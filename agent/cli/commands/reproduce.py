"""`agent reproduce`: from an issue to a test that fails on the base for the issue's reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from agent.cli import options
from agent.cli.commands import common
from agent.cli.commands.solve import solve_problem

# A run of one or two calls.
_LIMITS = {"max_steps": 0, "repairs": 0, "locate": "never", "evidence": "own"}


@options.command(
    "reproduce",
    settings=options.CHECK_SETTINGS,
    rare=(
        "problem",
        "commit",
        "dirty",
        "output",
        "record",
        "replay",
        "verbose",
        "project",
        "commit_message",
        "without_test",
    ),
    prints_record=True,
    ending="""
    Examples:
      agent reproduce issue.md --repo ./target > test.diff
      agent reproduce owner/name#123 --apply

    One call, and a second one with what went wrong if the first test passes on
    the base or fails by a mistake of its own.

    Exit codes: 0 the test fails for the issue's reason, 2 usage, 3 no test in
    the reply, 6 no test that shows the issue, 7 time limit, 8 budget,
    9 provider, 10 sandbox, 11 no test could be run, 130 interrupted.
    """,
)
@click.argument("issue", required=False)
@options.text("--problem", "TEXT", "The issue, as ISSUE but not as text.")
@options.base
@options.delivery
@options.as_record
@options.quiet
@options.verbose
@options.scope
@options.text("--project", "OWNER/NAME", "The target's name in the file of --environments.")
@options.path("--record", "Save every model exchange to this file.")
@options.path("--replay", "Answer from a recorded file, offline.")
def reproduce_command(
    flags: Mapping[str, Any], issue: str | None, problem: str | None, **given: Any
) -> int:
    """Write a test that fails for the issue's reason; a diff that adds it goes to stdout.

    ISSUE is as for `agent solve`. The model sees the issue and code, and no patch.
    """
    source = common.one_of("the issue", "agent reproduce ISSUE, or --problem", issue, problem)
    text = common.load_problem(source, text=issue is not None)
    return solve_problem(text, {**flags, **_LIMITS}, {**given, "problem": source}, reproduces=True)
