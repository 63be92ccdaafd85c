"""Commands about kept runs: `agent runs`, `agent show`, `agent accept` and `agent reject`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli import options
from agent.cli.commands import common
from agent.errors import ConfigurationError
from agent.shared.terminal import counted, inert, say

if TYPE_CHECKING:
    from agent.results.kept import Feedback, KeptRun

_TITLE_SHOWN = 60  # characters of an issue's title in the table


@options.command(
    "runs",
    ending="""
    Example:
      agent runs
    """,
)
@options.as_json
def runs_command(json: bool) -> int:
    """List the runs of `agent solve` that are kept on this machine, the newest first."""
    from agent.results.kept import list_runs, runs_folder

    runs = list(list_runs(runs_folder()))
    if not runs and not json:
        say(f"no run is kept yet ({runs_folder()})")
        return 0
    head = ("run", "begun (UTC)", "end", "cost", "repository", "issue")
    rows = [[" ".join(inert(cell).split()) for cell in row] for row in (head, *map(_row, runs))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    table = "".join(f"{line}\n" for line in lines)
    common.print_result([_facts(run) for run in runs], table, json=json)
    return 0


def _facts(run: KeptRun) -> dict[str, Any]:
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
    cost = result.usage.cost_usd if result else None
    return (
        run.id,
        _begun(run),
        f"{end}, {run.feedback}" if run.feedback else end,
        "-" if cost is None else f"${cost:.4f}",
        Path(run.origin.repository).name,
        title if len(title) <= _TITLE_SHOWN else f"{title[: _TITLE_SHOWN - 1]}…",
    )


def _begun(run: KeptRun) -> str:
    return run.origin.started[:16].replace("T", " ")


@options.command(
    "show",
    ending="""
    Example:
      agent show 3f2a
    """,
)
@click.argument("run", required=False)
@options.flag("--receipt", "Show why each piece of code was in the context instead.")
@options.flag("--log", "Show what the test runs that did not pass printed instead.")
@options.as_json
def show_command(run: str | None, receipt: bool, log: bool, json: bool) -> int:
    """Show a kept run: its issue, verdict, cost and diff.

    RUN is the beginning of its id in `agent runs`; without it, the last run of this repository is
    shown.
    """
    kept = common.find_kept(run)
    origin, result = kept.origin, kept.result
    if receipt:
        return _show_receipt(kept, json=json)
    if log:
        return _show_log(kept)
    dirty = " with uncommitted changes" if origin.dirty else ""
    again = f", after run {origin.retry_of}" if origin.retry_of else ""
    lines = [
        f"run {kept.id} of {_begun(kept)} UTC{again}",
        f"issue: {origin.title} ({origin.source})",
        f"base: {origin.repository} at {origin.commit[:10]}{dirty}",
    ]
    if result is None:
        paid = counted(len(kept.exchanges), "paid reply", "paid replies")
        lines.append(f"unfinished, with {paid}: the same command goes on from there")
    else:
        lines += [common.in_words(result, has_patch=bool(result.diff)), "", result.diff]
    document = result.model_dump(mode="json", exclude={"receipt"}) if result else None
    facts = {**_facts(kept), "result": document}
    common.print_result(facts, "".join(f"{line}\n" for line in lines), json=json)
    return 0


def _show_log(kept: KeptRun) -> int:
    for number, attempt in enumerate(kept.result.attempts if kept.result else (), 1):
        validation = attempt.validation
        for name in ("before", "reproduction_before", "after", "reproduction_after", "whole"):
            run = getattr(validation, name, None)
            if run is not None and run.output:
                command = shlex.join(run.command)
                common.write_stdout(f"# attempt {number}, {name}: {command}\n{run.output}\n\n")
    return 0


def _show_receipt(kept: KeptRun, *, json: bool) -> int:
    from agent.retrieval.context import render_receipt

    receipt = kept.result.receipt if kept.result else None
    if receipt is None:
        raise ConfigurationError(f"run {kept.id} has no receipt: it ended before its context")
    common.print_result(asdict(receipt), render_receipt(receipt), json=json)
    return 0


def _give_feedback(prefix: str | None, feedback: Feedback, *, json: bool, quiet: bool) -> int:
    """Mark a run, and add its patch to the memory of its project or take it out."""
    from agent.repository import take_snapshot
    from agent.wiring.search import memory_of

    run = common.find_kept(prefix)
    diff = run.diff
    if diff is None and feedback == "accepted":
        raise ConfigurationError(f"run {run.id} has no patch to accept: see `agent show {run.id}`")
    repository = Path(run.origin.repository)
    settings = common.load_settings({}, repository=repository)
    memory = memory_of(settings, take_snapshot(repository, commit=run.origin.commit))
    change = memory.remember if feedback == "accepted" else memory.take_back
    try:
        changed = diff is not None and change(run.problem, diff, run.origin.commit)
        run.say(feedback)
    except OSError as error:
        place = error.filename or memory.path
        raise ConfigurationError(f"{place}: {error.strerror}: nothing is remembered") from None
    entries = len(memory.entries())
    patches = counted(entries, "patch", "patches")
    words = f"run {run.id} is {feedback}; {patches} of this project remembered\n"
    facts = {"run": run.id, "feedback": feedback, "changed": changed, "remembered": entries}
    common.print_result(facts, "" if quiet else words, json=json)
    return 0


@options.command(
    "accept",
    ending="""
    Example:
      agent accept 3f2a
    """,
)
@click.argument("run", required=False)
@options.as_json
@options.quiet
def accept(run: str | None, json: bool, quiet: bool) -> int:
    """Say that the patch of a kept run (RUN, or the last one here) is right.

    `agent search --corpus memory` finds it, and `--corpora memory` shows it to later runs of this
    project. It stays on this machine.
    """
    return _give_feedback(run, "accepted", json=json, quiet=quiet)


@options.command(
    "reject",
    ending="""
    Example:
      agent reject 3f2a
    """,
)
@click.argument("run", required=False)
@options.as_json
@options.quiet
def reject(run: str | None, json: bool, quiet: bool) -> int:
    """Say that the patch of a kept run (RUN, or the last one here) is wrong.

    It is marked in `agent runs`, and taken out of the accepted patches.
    """
    return _give_feedback(run, "rejected", json=json, quiet=quiet)
