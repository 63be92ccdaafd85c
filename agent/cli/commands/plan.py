"""`agent plan`: print the plan that plan search makes for an issue, grounded in the code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import (
    guarded,
    load_problem,
    load_settings,
    print_value,
    write_stdout,
)
from agent.cli.commands.hits import shown
from agent.cli.commands.retrieval import rank_chunks, warning
from agent.cli.commands.search import open_project
from agent.cli.options import (
    RETRIEVAL_SETTINGS,
    json_option,
    problem_option,
    quiet_option,
    repo_options,
    scope_option,
)
from agent.cli.options import command as declare
from agent.shared.secrets import mask_secrets
from agent.shared.terminal import say
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.search.plans import Planned
    from agent.settings import Settings
    from agent.types import Problem, Ranking
    from agent.types.protocols import Reporter, Snapshot


def _plan(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    from agent.retrieval.ranking import in_scope

    problem = load_problem(given["problem"])
    settings = load_settings(flags, repository=given["repo"])
    with warning(quiet=given["quiet"]) as reporter:
        snapshot = in_scope(problem, open_project(given, settings, reporter))
        ranking = rank_chunks(problem, snapshot, settings, reporter)
        planned = asyncio.run(_planned(problem, snapshot, ranking, given, settings, reporter))
        if planned.note:
            reporter(Notice(planned.note, "warning"))
    if given["json"]:
        print_value(_as_json(planned, snapshot.commit))
    else:
        write_stdout(_in_words(planned))
    if not planned.steps:
        say("agent: no plan; say in the issue what goes wrong, and where it shows")
    return 0


async def _planned(
    problem: Problem,
    snapshot: Snapshot,
    ranking: Ranking,
    given: Mapping[str, Any],
    settings: Settings,
    reporter: Reporter,
) -> Planned:
    from agent.wiring import make_counter, make_planner, open_chat

    async with AsyncExitStack() as stack:
        calls, beam = given["calls"], given["beam"]
        chat = await open_chat(stack, settings, reporter) if calls else None
        counter = make_counter(settings.model)
        planner = make_planner(settings, counter, reporter, calls=calls, beam=beam)
        return await planner.plan(problem, snapshot, ranking, chat)


def _as_json(planned: Planned, commit: str) -> dict[str, Any]:
    """Return a plan as JSON values, with secrets masked."""
    steps = [
        {
            "intent": mask_secrets(step.intent).text,
            "score": round(step.score, 6),
            "places": [
                {"path": p.path, "start": p.start, "end": p.end, "symbol": p.symbol}
                for p in step.places
            ],
        }
        for step in planned.steps
    ]
    value = round(planned.winner.value, 6)
    return {"commit": commit, "value": value, "calls": planned.calls, "steps": steps}


def _in_words(planned: Planned) -> str:
    """Return each step with its score, and below it the code that it leads to."""
    lines: list[str] = []
    for number, step in enumerate(planned.steps, start=1):
        lines.append(f"{number}. {step.score:.2f}  {step.intent}")
        lines.extend(f"      {p.path}:{p.start}-{p.end}  {p.symbol}" for p in step.places)
    return shown(lines)


@declare(
    "plan",
    settings=(*RETRIEVAL_SETTINGS, "max_cost"),
    ending="""
    Example:
      agent plan --problem issue.md --repo ./target

    With plans that the model proposes too, in at most three calls:
      agent plan --problem issue.md --repo ./target --calls 3
    """,
)
@problem_option
@repo_options
@scope_option
@click.option(
    "--beam", type=click.IntRange(1), metavar="N",
    help="Plans that each round of the search keeps (best-first without).",
)  # fmt: skip
@click.option(
    "--calls", "--plan-calls", "calls", type=click.IntRange(0), default=0, metavar="N",
    help="Most model calls that propose plans.",
)  # fmt: skip
@json_option
@quiet_option
def command(flags: Mapping[str, Any], **given: Any) -> int:
    """Show a plan for an issue: what to look for, and the code where it is."""
    return guarded(lambda: _plan(given, flags), flags=flags)
