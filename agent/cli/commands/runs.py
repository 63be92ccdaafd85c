"""`agent runs`: list the kept runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cli.commands.common import guarded, print_value, write_stdout
from agent.cli.options import command as declare
from agent.cli.options import json_option
from agent.shared.terminal import inert, say

if TYPE_CHECKING:
    from agent.results.kept import KeptRun

_TITLE_SHOWN = 60  # characters of an issue's title in the table


def run_list(*, json: bool) -> int:
    """Print all kept runs, the newest first. Return the exit code."""
    from agent.results.kept import list_runs, runs_folder

    found = list_runs(runs_folder())
    if json:
        print_value([summary_of(run) for run in found])
        return 0
    rows = [_row(run) for run in found]
    if not rows:
        say(f"no run is kept yet ({runs_folder()})")
        return 0
    print_lines([*_table([("run", "begun (UTC)", "end", "cost", "repository", "issue"), *rows])])
    return 0


def summary_of(run: KeptRun) -> dict[str, Any]:
    """Return the facts of a run as JSON. `status` is "unfinished" if it has no result."""
    result = run.result
    return {
        "run": run.id,
        **run.origin.model_dump(mode="json", exclude={"format", "key", "changed", "settings"}),
        "status": result.status.value if result else "unfinished",
        "feedback": run.feedback or None,
        "verdict": result.verdict if result else None,
        "message": result.message if result else "",
        "model": result.model if result else None,
        "usage": asdict(result.usage) if result else None,
    }


def _row(run: KeptRun) -> Sequence[str]:
    result, title = run.result, run.origin.title
    end = "unfinished" if result is None else result.verdict or result.status.value
    end = f"{end}, {run.feedback}" if run.feedback else end
    cost = result.usage.cost_usd if result else None
    return (
        run.id,
        run.origin.started[:16].replace("T", " "),
        end,
        "-" if cost is None else f"${cost:.4f}",
        Path(run.origin.repository).name,
        title if len(title) <= _TITLE_SHOWN else f"{title[: _TITLE_SHOWN - 1]}…",
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Yield the rows with aligned columns; the last column may have any width."""
    plain = [[" ".join(inert(cell).split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    for row in plain:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def print_lines(lines: Iterable[str]) -> None:
    """Print untrusted lines to stdout."""
    write_stdout("".join(f"{line}\n" for line in lines))


@declare(
    "runs",
    ending="""
    Example:
      agent runs
    """,
)
@json_option
def command(json: bool) -> int:
    """List the runs of `agent solve` that are kept on this machine, the newest first."""
    return guarded(lambda: run_list(json=json))
