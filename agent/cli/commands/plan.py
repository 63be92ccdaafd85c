"""`agent plan`: print the plan that plan search makes for an issue, grounded in the code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.cli.commands.common import guarded, load_problem, print_value, write_stdout
from agent.cli.commands.hits import shown, terminal_width
from agent.cli.commands.retrieval import (
    InspectRequest,
    open_code,
    open_settings,
    rank_chunks,
    warning,
)
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


def plan(request: InspectRequest, flags: Mapping[str, Any]) -> int:
    """Print the plan as a list or JSON."""
    return guarded(lambda: _plan(request, flags), flags=flags)


def _plan(request: InspectRequest, flags: Mapping[str, Any]) -> int:
    from agent.retrieval.ranking import in_scope

    assert request.problem is not None
    problem = load_problem(request.problem)
    settings = open_settings(request, flags)
    with warning(quiet=request.quiet) as reporter:
        snapshot = in_scope(problem, open_code(request, settings, reporter, scope=request.path))
        ranking = rank_chunks(problem, snapshot, settings, reporter)
        planned = asyncio.run(_planned(problem, snapshot, ranking, settings, reporter))
        if planned.note:
            reporter(Notice(planned.note, "warning"))
    if request.json:
        print_value(as_json(planned, snapshot.commit))
    else:
        write_stdout(in_words(planned))
    if not planned.steps:
        say("agent: no plan; say in the issue what goes wrong, and where it shows")
    return 0


async def _planned(
    problem: Problem,
    snapshot: Snapshot,
    ranking: Ranking,
    settings: Settings,
    reporter: Reporter,
) -> Planned:
    from agent.wiring import make_counter, make_planner

    planner = make_planner(settings, make_counter(settings.model), reporter)
    return await planner.plan(problem, snapshot, ranking)


def as_json(planned: Planned, commit: str) -> dict[str, Any]:
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
    value = round(planned.winner.value.total, 6)
    return {"commit": commit, "value": value, "calls": planned.calls, "steps": steps}


def in_words(planned: Planned) -> str:
    """Return a plan as text: each step with its score, and below it the code that it leads to."""
    lines: list[str] = []
    for number, step in enumerate(planned.steps, start=1):
        lines.append(f"{number}. {step.score:.2f}  {step.intent}")
        lines.extend(f"      {p.path}:{p.start}-{p.end}  {p.symbol}" for p in step.places)
    return shown(lines, terminal_width())


@declare(
    "plan",
    settings=RETRIEVAL_SETTINGS,
    ending="""
    Example:
      agent plan --problem issue.md --repo ./target
    """,
)
@problem_option
@repo_options
@scope_option
@json_option
@quiet_option
def command(flags: Mapping[str, Any], **given: Any) -> int:
    """Show a plan for an issue: what to look for, and the code where it is."""
    return plan(InspectRequest(**given), flags)
