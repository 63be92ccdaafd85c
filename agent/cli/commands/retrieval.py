"""`agent context`, and functions that commands which rank code share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import (
    load_problem,
    load_settings,
    load_snapshot,
    make_redactor,
    own_file,
    print_value,
    reporting,
    write_stdout,
)
from agent.cli.options import (
    CONTEXT_SETTINGS,
    json_option,
    problem_option,
    quiet_option,
    repo_options,
    scope_option,
)
from agent.cli.options import command as declare
from agent.shared.terminal import say
from agent.types.events import Notice, StageFinished, StageStarted

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.types import Problem, Ranking
    from agent.types.events import Event
    from agent.types.protocols import Reporter, Snapshot


@contextmanager
def warning(*, quiet: bool) -> Iterator[Reporter]:
    """Yield a reporter like `reporting`, but `quiet` silences progress only and not warnings."""
    with reporting(quiet=quiet) as reporter:
        yield _say_warnings if quiet else reporter


def _say_warnings(event: Event) -> None:
    if isinstance(event, Notice) and event.level == "warning":
        say(f"warning: {make_redactor()(event.message)}")


def rank_chunks(
    problem: Problem, snapshot: Snapshot, settings: Settings, reporter: Reporter
) -> Ranking:
    """Rank the chunks for a problem, and report which inputs the ranking could not use."""
    from agent.retrieval.ranking import no_words
    from agent.wiring import open_retriever

    async def rank() -> Ranking:
        async with open_retriever(settings, reporter) as retriever:
            return await retriever.rank(problem, snapshot)

    started = time.perf_counter()
    reporter(StageStarted("retrieve"))
    ranking = asyncio.run(rank())
    seconds = time.perf_counter() - started
    reporter(StageFinished("retrieve", seconds, f"{ranking.total_chunks:,} chunks"))
    for note in no_words(ranking):
        reporter(Notice(note, "warning"))
    return ranking


@declare(
    "context",
    settings=CONTEXT_SETTINGS,
    ending="""
    Example:
      agent context --problem issue.md --repo ./target
    """,
)
@problem_option
@repo_options
@scope_option
@click.option("--prompt", is_flag=True, help="Print the whole prompt instead, as it would be sent.")
@json_option
@quiet_option
def context_command(
    flags: Mapping[str, Any],
    problem: str,
    repo: Path,
    commit: str | None,
    dirty: str,
    path: Path | None,
    prompt: bool,
    json: bool,
    quiet: bool,
) -> int:
    """Show the packed context and its receipt, as the model would be shown it; no model call."""
    from agent.retrieval.context import make_receipt, pack, render_receipt
    from agent.retrieval.index import TreeSitterChunker
    from agent.retrieval.ranking import in_scope
    from agent.run.prompting import solve_prompt
    from agent.verify import find_test_hints, known_secrets
    from agent.wiring import make_counter, packing_options

    issue = load_problem(problem)
    with warning(quiet=quiet) as reporter:
        settings = load_settings(flags, repository=repo)
        counter, packing = make_counter(settings.model), packing_options(settings)
        snapshot = load_snapshot(
            repo,
            commit,
            dirty,
            reporter,
            exclude=(own_file(problem),),
            scope=path,
            max_file_mb=settings.max_file_mb,
        )
        snapshot = in_scope(issue, snapshot)
        ranking = rank_chunks(issue, snapshot, settings, reporter)
        bundle = pack(issue, ranking, snapshot, counter, packing, chunker=TreeSitterChunker())
    receipt, masked = make_receipt(ranking, bundle), known_secrets(snapshot).masked
    if prompt:
        tests = find_test_hints(issue, ranking, snapshot, counter)
        messages = solve_prompt(issue, bundle, tests, counter).messages
        if json:
            print_value([{"role": m.role, "content": masked(m.content)} for m in messages])
        else:
            write_stdout("\n\n".join(f"[{m.role}]\n{masked(m.content)}" for m in messages) + "\n")
    elif json:
        print_value({**asdict(receipt), "text": masked(bundle.text)})
    else:
        write_stdout(f"{masked(bundle.text)}\n\n## Receipt\n\n{render_receipt(receipt)}")
    return 0
