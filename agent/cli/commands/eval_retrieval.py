"""`agent eval retrieval`: measure how well retrieval finds the code that has to change."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import (
    guarded,
    load_settings,
    print_value,
    refuse_overwriting,
    reporting,
    write_stdout,
)
from agent.cli.options import (
    CONTEXT_SETTINGS,
    choice_option,
    dataset_options,
    json_option,
    path_option,
    quiet_option,
)
from agent.cli.options import (
    command as declare,
)
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.datasets import Split
    from agent.evaluation.retrieval import RetrievalPlan


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """Arguments of `agent eval retrieval` that are not settings."""

    dataset: Path
    repos: Path
    output: Path
    budgets: str
    split: Split
    limit: int | None
    workers: int | None
    restart: bool
    json: bool
    quiet: bool


def retrieval(request: EvaluateRequest, flags: Mapping[str, Any]) -> int:
    """Write the rows and print the figures as tables or JSON. Return the exit code."""
    return guarded(lambda: _retrieval(request, flags), flags=flags)


def _retrieval(request: EvaluateRequest, flags: Mapping[str, Any]) -> int:
    from agent.evaluation.retrieval import RetrievalPlan, evaluate, render
    from agent.wiring import retrieval_options

    settings = load_settings(flags)
    retrieval_options(settings)  # reports unknown names before hours of work
    if str(request.output) == "-":
        raise ConfigurationError("--output -: rows are gone on from; name a file to keep them in")
    if not request.output.parent.is_dir():
        raise ConfigurationError(
            f"--output {request.output}: there is no folder {request.output.parent}"
        )
    plan = RetrievalPlan(
        dataset=request.dataset,
        repositories=request.repos,
        output=request.output,
        settings=settings,
        flags=flags,
        budgets=_budgets(request.budgets),
        split=request.split,
        limit=request.limit,
        workers=request.workers,
        restart=request.restart,
    )
    _check_outputs(plan)
    with reporting(quiet=request.quiet) as reporter, terminated_as_interrupted():
        evaluation = evaluate(plan, reporter)
    if request.json:
        print_value(asdict(evaluation))
    else:
        write_stdout(render(evaluation))
    if evaluation.instances == len(evaluation.skipped):
        raise ConfigurationError("every instance was skipped; see the reasons, check --repos")
    return 0


def _check_outputs(plan: RetrievalPlan) -> None:
    """Raise ConfigurationError if the rows would overwrite the data set."""
    from agent.evaluation.retrieval import written_paths

    for path in written_paths(plan.output):
        refuse_overwriting(path, {"--dataset": plan.dataset})


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C within the block: rows are complete and workers are stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _budgets(text: str) -> tuple[int, ...]:
    """Parse comma-separated numbers. Return them sorted and without duplicates."""
    from agent.settings import MIN_CONTEXT_TOKENS

    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise ConfigurationError(f"--budgets {text}: give token counts such as 3000,6000")
    found = tuple(sorted({int(part) for part in parts}))
    if found and found[0] < MIN_CONTEXT_TOKENS:
        raise ConfigurationError(
            f"--budgets {text}: {found[0]} holds no code; the least is {MIN_CONTEXT_TOKENS}, as of "
            "--context-tokens"
        )
    return found


@declare(
    "retrieval",
    settings=CONTEXT_SETTINGS,
    ending="""
    Example:
      agent eval retrieval --dataset issues.jsonl --repos ./repositories \\
          --output rows.jsonl --preset lexical
    """,
)
@dataset_options
@path_option(
    "--output", "-o", help="One JSON row an instance; rows already there are kept.", required=True
)
@click.option(
    "--budgets", default="3000,6000,12000,24000", show_default=True,
    help="Token budgets to show context recall at, with commas; '' for none.",
)  # fmt: skip
@choice_option(
    "--split",
    ("tune", "held-out", "all"),
    "all",
    "Whole projects, by hash: tune on 60%, report 40%.",
)
@click.option("--limit", "-n", type=click.IntRange(1), help="Only the first so many.")
@click.option("--workers", type=click.IntRange(1), help="Processes (one a core).")
@click.option(
    "--restart", is_flag=True, help="Overwrite the rows that are there, and their .budgets.jsonl."
)
@json_option
@quiet_option
def command(flags: Mapping[str, Any], **given: Any) -> int:
    """Measure how well retrieval finds the code to change, on issues whose answer is known."""
    return retrieval(EvaluateRequest(**given), flags)
