"""`agent context`: print the packed context and its receipt, without a model call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from agent.cli.commands.common import guarded, load_problem, print_value, write_stdout
from agent.cli.commands.retrieval import (
    InspectRequest,
    open_code,
    open_settings,
    rank_chunks,
    warning,
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
from agent.types import ContextBundle


def context(request: InspectRequest, flags: Mapping[str, Any], *, prompt: bool) -> int:
    """Print the packed context and its receipt as Markdown or JSON, or the whole prompt."""
    return guarded(lambda: _context(request, flags, prompt=prompt), flags=flags)


def _context(request: InspectRequest, flags: Mapping[str, Any], *, prompt: bool) -> int:
    from agent.retrieval.context import make_receipt, pack, render_receipt
    from agent.retrieval.index import TreeSitterChunker
    from agent.retrieval.ranking import in_scope
    from agent.run.prompting import solve_prompt
    from agent.verify import find_test_hints, known_secrets
    from agent.wiring import make_counter, packing_options

    assert request.problem is not None
    problem = load_problem(request.problem)
    with warning(quiet=request.quiet) as reporter:
        settings = open_settings(request, flags)
        snapshot = in_scope(problem, open_code(request, settings, reporter, scope=request.path))
        ranking = rank_chunks(problem, snapshot, settings, reporter)
        counter = make_counter(settings.model)
        bundle: ContextBundle = pack(
            problem,
            ranking,
            snapshot,
            counter,
            packing_options(settings),
            chunker=TreeSitterChunker(),
        )
    receipt, masked = make_receipt(ranking, bundle), known_secrets(snapshot).masked
    if prompt:
        tests = find_test_hints(problem, ranking, snapshot, counter)
        messages = solve_prompt(problem, bundle, tests, counter).messages
        if request.json:
            print_value([{"role": m.role, "content": masked(m.content)} for m in messages])
        else:
            shown = "\n\n".join(f"[{m.role}]\n{masked(m.content)}" for m in messages)
            write_stdout(f"{shown}\n")
    elif request.json:
        print_value({**asdict(receipt), "text": masked(bundle.text)})
    else:
        shown = f"{masked(bundle.text)}\n\n## Receipt\n\n{render_receipt(receipt)}"
        write_stdout(shown)
    return 0


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
def command(flags: Mapping[str, Any], prompt: bool, **given: Any) -> int:
    """Show the packed context and its receipt, as the model would be shown it; no model call."""
    return context(InspectRequest(**given), flags, prompt=prompt)
