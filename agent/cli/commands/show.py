"""`agent show`: show one kept run."""

from __future__ import annotations

import click

from agent.cli.commands.common import counted, guarded, print_value
from agent.cli.commands.runs import print_lines, summary_of
from agent.cli.commands.solve import in_words
from agent.cli.options import command as declare
from agent.cli.options import json_option


def show(prefix: str | None, *, json: bool) -> int:
    """Print one run with its diff. Return the exit code."""
    from agent.results.kept import find_run, runs_folder

    run = find_run(runs_folder(), prefix)
    if json:
        document = run.result.model_dump(mode="json") if run.result else None
        print_value({**summary_of(run), "result": document})
        return 0
    origin, result = run.origin, run.result
    dirty = " with uncommitted changes" if origin.dirty else ""
    again = f", after run {origin.retry_of}" if origin.retry_of else ""
    lines = [
        f"run {run.id} of {origin.started[:16].replace('T', ' ')} UTC{again}",
        f"issue: {origin.title} ({origin.source})",
        f"base: {origin.repository} at {origin.commit[:10]}{dirty}",
    ]
    if result is None:
        paid = counted(len(run.exchanges), "paid reply", "paid replies")
        lines.append(f"unfinished, with {paid}: the same `agent solve` goes on from there")
    else:
        lines += [in_words(result, has_patch=bool(result.diff)), "", *result.diff.split("\n")]
    print_lines(lines)
    return 0


@declare(
    "show",
    ending="""
    Example:
      agent show
      agent show 3f2a
    """,
)
@click.argument("run", required=False)
@json_option
def command(run: str | None, json: bool) -> int:
    """Show a kept run: its issue, verdict, cost and diff.

    RUN is the beginning of its id in `agent runs`; without it, the last run is shown.
    """
    return guarded(lambda: show(run, json=json))
