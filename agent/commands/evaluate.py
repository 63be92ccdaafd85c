"""`agent eval retrieval`: how well the code to change is found, on issues of known answer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.common import (
    guarded,
    print_value,
    refuse_overwriting,
    reporting,
    write_stdout,
)
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.evaluation.dataset import Split
    from agent.evaluation.runner import Plan


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """What is asked of one invocation, beside the settings."""

    dataset: Path
    repos: Path
    output: Path
    presets: Sequence[str]
    budgets: str
    split: Split
    limit: int | None
    workers: int | None
    restart: bool
    json: bool
    quiet: bool


def retrieval(request: EvaluateRequest, flags: Mapping[str, Any]) -> int:
    """Write the rows and print the figures as tables or JSON."""
    return guarded(lambda: _retrieval(request, flags))


def _retrieval(request: EvaluateRequest, flags: Mapping[str, Any]) -> int:
    from agent.evaluation.runner import Plan, evaluate
    from agent.evaluation.table import render
    from agent.services.retrieval import retrieval_options
    from agent.settings import load

    given = {name: value for name, value in flags.items() if value is not None}
    names = list(dict.fromkeys(request.presets)) or [load(given).preset]
    if str(request.output) == "-":
        raise ConfigurationError("--output -: rows are gone on from; name a file to keep them in")
    if not request.output.parent.is_dir():
        raise ConfigurationError(
            f"--output {request.output}: there is no folder {request.output.parent}"
        )
    settings = {name: load({**given, "preset": name}) for name in names}
    for own in settings.values():
        retrieval_options(own)  # a name that there is not is said before hours of work
    plan = Plan(
        dataset=request.dataset,
        repositories=request.repos,
        output=request.output,
        settings=settings,
        flags=given,
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
        write_stdout(render(evaluation).encode("utf-8", "replace"))
    if evaluation.instances == len(evaluation.skipped):
        raise ConfigurationError("every instance was skipped; see the reasons, check --repos")
    return 0


def _check_outputs(plan: Plan) -> None:
    """Raises ConfigurationError where rows would replace the data set."""
    from agent.evaluation.runner import output_paths, written_paths

    refuse_overwriting(plan.output, {"--dataset": plan.dataset})
    for output in output_paths(plan).values():
        for path in written_paths(output):
            refuse_overwriting(path, {"--dataset": plan.dataset})


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does: rows are whole, workers are stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _budgets(text: str) -> tuple[int, ...]:
    """Numbers with commas between, each once, ascending."""
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
