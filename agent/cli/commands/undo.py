"""`agent undo`: take back what `--apply` wrote."""

from __future__ import annotations

from pathlib import Path

import click

from agent.cli.commands.common import finish_writes, guarded, print_value, reporting, write_stdout
from agent.cli.commands.output import in_words_of, listed
from agent.cli.options import command as declare
from agent.cli.options import json_option, quiet_option
from agent.errors import Status


def _undo(repo: Path, name: str, *, json: bool, quiet: bool) -> int:
    from agent.repository import locate
    from agent.results.work_tree import journal_folder, undo_changes

    root = locate(repo).root
    with reporting(quiet=quiet) as reporter:
        finish_writes(root, reporter)
    outcome = undo_changes(root, journal_folder(), run=name)
    status = Status.NOT_APPLIED if outcome.conflicts else Status.ACCEPTED
    message = in_words_of(outcome) if outcome.conflicts else f"restored {listed(outcome.written)}"
    if json:
        conflicts = {conflict.path: conflict.reason for conflict in outcome.conflicts}
        print_value({"restored": list(outcome.written), "conflicts": conflicts})
    else:
        write_stdout(f"{message}\n")
    return status.exit_code


@declare(
    "undo",
    ending="""
    Example:
      agent solve --problem issue.md --apply
      agent undo
    """,
)
@click.argument("run", required=False, default="", metavar="[RUN]")
@click.option(
    "--repo", type=click.Path(path_type=Path), default=Path(), help="The target git repository."
)
@json_option
@quiet_option
def command(run: str, repo: Path, json: bool, quiet: bool) -> int:
    """Take back what the last --apply, or that of RUN, wrote; files changed since are not touched.

    If one has changed since, nothing is written.
    """
    return guarded(lambda: _undo(repo, run, json=json, quiet=quiet))
