"""`agent accept` and `agent reject`: say whether the patch of a kept run was right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent.cli.commands.common import guarded, load_settings, print_value, write_stdout
from agent.cli.options import command as declare
from agent.cli.options import json_option, quiet_option
from agent.errors import ConfigurationError, RepositoryError

if TYPE_CHECKING:
    from agent.results.kept import Feedback, KeptRun
    from agent.search import Memory


def give_feedback(prefix: str | None, feedback: Feedback, *, json: bool, quiet: bool) -> int:
    """Mark a run, and add its patch to the memory of its project or take it out."""
    from agent.results.kept import find_run, runs_folder

    run = find_run(runs_folder(), prefix)
    diff = run.diff
    if diff is None and feedback == "accepted":
        raise ConfigurationError(f"run {run.id} has no patch to accept: see `agent show {run.id}`")
    memory = _memory(run)
    change = memory.remember if feedback == "accepted" else memory.take_back
    try:
        changed = diff is not None and change(run.problem, diff, run.origin.commit)
        run.say(feedback)
    except OSError as error:
        place = error.filename or memory.path
        raise ConfigurationError(f"{place}: {error.strerror}: nothing is remembered") from None
    entries = len(memory.entries())
    if json:
        print_value(
            {"run": run.id, "feedback": feedback, "changed": changed, "remembered": entries}
        )
    elif not quiet:
        kept = f"{entries:,} patch{'es' * (entries != 1)} of this project remembered"
        write_stdout(f"run {run.id} is {feedback}; {kept}\n")
    return 0


def _memory(run: KeptRun) -> Memory:
    """Return the memory of the run's project. Raises ConfigurationError if the project is gone."""
    from agent.repository import take_snapshot
    from agent.wiring.search import memory_of

    repository = Path(run.origin.repository)
    settings = load_settings({}, repository=repository)
    try:
        return memory_of(settings, take_snapshot(repository, commit=run.origin.commit))
    except RepositoryError as error:
        raise ConfigurationError(f"run {run.id}: {error}") from None


def _declared(name: str, feedback: Feedback, text: str) -> click.Command:
    @declare(
        name,
        ending=f"""
    Example:
      agent {name} 3f2a
    """,
    )
    @click.argument("run", required=False)
    @json_option
    @quiet_option
    def command(run: str | None, json: bool, quiet: bool) -> int:
        return guarded(lambda: give_feedback(run, feedback, json=json, quiet=quiet), json=json)

    command.help = text
    return command


accept = _declared(
    "accept",
    "accepted",
    "Say that the patch of a kept run is right (RUN: the beginning of its id; the last run "
    "without). Later runs of this project rank the files that it changed higher for issues like "
    "its own, and `agent search --corpus memory` finds it. It stays on this machine.",
)
reject = _declared(
    "reject",
    "rejected",
    "Say that the patch of a kept run is wrong (RUN: the beginning of its id; the last run "
    "without). It is marked in `agent runs`, and taken out of the accepted patches.",
)
