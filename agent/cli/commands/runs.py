"""Commands about kept runs, `agent runs` and `agent show`; and `agent demo`.

`agent accept` and `agent reject`: say whether the patch of a kept run was right.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import (
    counted,
    guarded,
    in_words,
    load_problem,
    load_settings,
    print_value,
    write_stdout,
)
from agent.cli.options import command as declare
from agent.cli.options import json_option, quiet_option, verbose_option
from agent.errors import ConfigurationError, RepositoryError
from agent.shared.terminal import inert, say

if TYPE_CHECKING:
    from agent.results.kept import Feedback, KeptRun
    from agent.search import Memory


_TITLE_SHOWN = 60  # characters of an issue's title in the table


@declare(
    "runs",
    ending="""
    Example:
      agent runs
    """,
)
@json_option
def runs_command(json: bool) -> int:
    """List the runs of `agent solve` that are kept on this machine, the newest first."""
    from agent.results.kept import list_runs, runs_folder

    runs = list(list_runs(runs_folder()))
    if json:
        print_value([summary_of(run) for run in runs])
    elif not runs:
        say(f"no run is kept yet ({runs_folder()})")
    else:
        head = ("run", "begun (UTC)", "end", "cost", "repository", "issue")
        print_lines(_table([head, *map(_row, runs)]))
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
    "show",
    ending="""
    Example:
      agent show
      agent show 3f2a
    """,
)
@click.argument("run", required=False)
@json_option
def show_command(run: str | None, json: bool) -> int:
    """Show a kept run: its issue, verdict, cost and diff.

    RUN is the beginning of its id in `agent runs`; without it, the last run is shown.
    """
    from agent.results.kept import find_run, runs_folder

    kept = find_run(runs_folder(), run)
    origin, result = kept.origin, kept.result
    if json:
        document = result.model_dump(mode="json") if result else None
        print_value({**summary_of(kept), "result": document})
        return 0
    dirty = " with uncommitted changes" if origin.dirty else ""
    again = f", after run {origin.retry_of}" if origin.retry_of else ""
    lines = [
        f"run {kept.id} of {origin.started[:16].replace('T', ' ')} UTC{again}",
        f"issue: {origin.title} ({origin.source})",
        f"base: {origin.repository} at {origin.commit[:10]}{dirty}",
    ]
    if result is None:
        paid = counted(len(kept.exchanges), "paid reply", "paid replies")
        lines.append(f"unfinished, with {paid}: the same `agent solve` goes on from there")
    else:
        lines += [in_words(result, has_patch=bool(result.diff)), "", *result.diff.split("\n")]
    print_lines(lines)
    return 0


# Name of the folder of the bundled project. Only its files are part of the recorded prompt.
PROJECT = "rota"

# If this variable is set, the demo calls that model.
_ENDPOINT = "PATCHSHOT_BASE_URL"

# Settings of the recording. Other settings of the user would change the prompt, and the recorded
# reply would not match.
_RECORDED = {
    "model": "recorded",
    "embed": "off",
    "preset": "default",
    "context_tokens": 6000,
    "max_chunks": 30,
    "repairs": 1,
    "max_steps": 0,
}


@declare(
    "demo",
    prints_record=True,
    ending="""
    Example:
      agent demo

    With your own model:
      PATCHSHOT_BASE_URL=http://127.0.0.1:8000/v1 PATCHSHOT_MODEL=NAME agent demo
    """,
)
@json_option
@quiet_option
@verbose_option
def demo_command(json: bool, quiet: bool, verbose: bool) -> int:
    """Run the main job on a bundled project, offline, with a recorded model reply.

    If PATCHSHOT_BASE_URL is set, the demo calls that model instead.
    """
    from agent.cli.commands.solve import solve_problem
    from agent.settings import environment

    source = _examples() / PROJECT
    address = environment((_ENDPOINT,)).get(_ENDPOINT)
    with tempfile.TemporaryDirectory(prefix="patchshot-demo-") as folder:
        target = Path(folder) / PROJECT
        _make_repository(source, target)
        if not quiet:
            _introduce(source / "ISSUE.md", address)
        arguments = {"repo": target, "json": json, "quiet": quiet, "verbose": verbose}
        flags: dict[str, Any] = {"keep": False}
        if address is None:
            flags |= _RECORDED
            arguments["replay"] = _examples() / f"{PROJECT}.recording.jsonl"
        return solve_problem(load_problem(str(source / "ISSUE.md")), flags, arguments)


def _introduce(issue: Path, address: str | None) -> None:
    title = issue.read_text("utf-8").split("\n", 1)[0].lstrip("# ")
    say(f'demo: project "{PROJECT}", issue: {title}')
    if address is not None:
        from agent.llm import without_credentials

        say(f"demo: calling the model at {without_credentials(address)}")
    else:
        say(
            "demo: the model's reply is a recorded one; retrieval, patching and tests are run now "
            "(set PATCHSHOT_BASE_URL and PATCHSHOT_MODEL to call a model)"
        )


def _make_repository(source: Path, target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", "ISSUE.md")
    shutil.copytree(source, target, ignore=ignored)
    identity = ("-c", "user.name=demo", "-c", "user.email=demo@example.invalid")
    quiet = ("-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "rota 1.4.0")):
        try:
            subprocess.run(
                ["git", *identity, *quiet, *arguments],
                cwd=target,
                check=True,
                capture_output=True,
                timeout=60,
            )
        except FileNotFoundError:
            raise ConfigurationError("git is not installed: install it and try again") from None


def _examples() -> Path:
    """Return the folder of examples: beside this package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "_examples"
    return inside if inside.is_dir() else package.parent / "examples"


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
