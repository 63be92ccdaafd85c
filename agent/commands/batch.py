"""`agent batch`: a whole data set, on one machine or a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.common import (
    guarded,
    make_redactor,
    print_value,
    refuse_overwriting,
    say,
    write_stdout,
)
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.batch.predictions import Form
    from agent.batch.run import EngineName
    from agent.batch.tally import Summary


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What is asked of one invocation, beside the settings. `None`: not given."""

    dataset: Path
    repos: Path
    output: Path
    form: Form | None = None
    run: Path | None = None
    ids: tuple[str, ...] = ()
    window: str | None = None
    match: str | None = None
    workers: int = 1
    engine: EngineName = "local"
    address: str | None = None
    max_total_cost: float | None = None
    max_requests_per_minute: float | None = None
    max_tries: int = 2
    name: str | None = None
    force: bool = False
    json: bool = False
    quiet: bool = False
    verbose: bool = False


def run(request: BatchRequest, flags: Mapping[str, Any]) -> int:
    """Solve, write the predictions, print the summary, and give the exit code."""
    return guarded(lambda: _run(request, flags))


def _run(request: BatchRequest, flags: Mapping[str, Any]) -> int:
    from agent.batch.dataset import make_selection
    from agent.batch.progress import progress_for
    from agent.batch.run import Plan, run
    from agent.batch.treasury import Bounds

    _check(request, flags)
    plan = Plan(
        dataset=request.dataset,
        repositories=request.repos,
        output=request.output,
        flags={name: _plain(value) for name, value in flags.items() if value is not None},
        run=request.run,
        form=request.form,
        selection=make_selection(request.ids, request.window, request.match),
        workers=request.workers,
        bounds=Bounds(request.max_total_cost, request.max_requests_per_minute),
        max_tries=request.max_tries,
        name=request.name,
        force=request.force,
        engine=request.engine,
        address=request.address or "auto",
        verbose=request.verbose,
    )
    summary = run(plan, progress_for(quiet=request.quiet))
    if request.json:
        print_value(summary.model_dump(mode="json"))
    else:
        write_stdout(in_words(summary).encode("utf-8", "replace"))
    if summary.message:
        say(f"agent: {make_redactor()(summary.message)}")
    return summary.exit_code


def _check(request: BatchRequest, flags: Mapping[str, Any]) -> None:
    """Options that contradict each other."""
    from agent.settings import load

    if request.address is not None and request.engine != "ray":
        raise ConfigurationError(
            f"--address {request.address} is of a Ray cluster: give --engine ray too, or neither"
        )
    environments = load(flags).environments
    inputs = {"--dataset": request.dataset, "--environments": environments}
    refuse_overwriting(request.output, inputs)


def _plain(value: Any) -> Any:
    """A flag as JSON can carry it to a worker."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def in_words(summary: Summary) -> str:
    """The summary as a few lines."""
    from agent.batch.progress import unsolved_in_words
    from agent.batch.tally import cost_in_words, replies_in_words

    kinds: Counter[str] = Counter(unsolved.kind for unsolved in summary.unsolved)
    rest = "".join(f", {part}" for part in unsolved_in_words(lambda kind: kinds[kind]))
    kept = f" ({summary.kept} kept of instances that are not selected)" if summary.kept else ""
    counts = ", ".join(f"{number} {status}" for status, number in summary.statuses.items())
    lines = [
        f"{summary.finished} of {summary.instances} instances finished"
        + (f": {counts}" if counts else ""),
        f"{summary.verified} verified, {summary.pending} to be done{rest}",
        f"{replies_in_words(summary.replies)} paid in {summary.seconds:.1f} s, "
        f"{cost_in_words(summary.cost_usd, summary.unpriced)} in all",
        f"predictions in {summary.predictions}{kept}, everything else in {summary.run}",
    ]
    return "\n".join(lines) + "\n"
