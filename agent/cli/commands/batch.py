"""`agent batch`: solve all instances of a data set, on one machine or a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import (
    guarded,
    load_settings,
    make_redactor,
    print_value,
    refuse_overwriting,
    write_stdout,
)
from agent.cli.options import (
    BATCH_SETTINGS,
    choice_option,
    dataset_options,
    json_option,
    path_option,
    quiet_option,
    selection_options,
)
from agent.cli.options import (
    command as declare,
)
from agent.errors import ConfigurationError
from agent.shared.terminal import say

if TYPE_CHECKING:
    from agent.batch import EngineName, Summary
    from agent.datasets import PredictionsForm


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Arguments of `agent batch` that are not settings. None means not given."""

    dataset: Path
    repos: Path
    output: Path
    form: PredictionsForm | None = None
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
    """Solve, write the predictions, print the summary, and return the exit code."""
    return guarded(lambda: _run(request, flags), flags=flags)


def _run(request: BatchRequest, flags: Mapping[str, Any]) -> int:
    from agent.batch import BatchPlan, Bounds, progress_for, run_batch
    from agent.datasets import make_selection

    _check(request, flags)
    plan = BatchPlan(
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
    summary = run_batch(plan, progress_for(quiet=request.quiet))
    if request.json:
        print_value(summary.model_dump(mode="json"))
    else:
        write_stdout(in_words(summary))
    if summary.message:
        say(f"agent: {make_redactor()(summary.message)}")
    return summary.exit_code


def _check(request: BatchRequest, flags: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for options that contradict each other."""
    if request.address is not None and request.engine != "ray":
        raise ConfigurationError(
            f"--address {request.address} is of a Ray cluster: give --engine ray too, or neither"
        )
    environments = load_settings(flags).environments
    inputs = {"--dataset": request.dataset, "--environments": environments}
    refuse_overwriting(request.output, inputs)


def _plain(value: Any) -> Any:
    """Convert the value of a flag to plain JSON, which is sent to the workers."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def in_words(summary: Summary) -> str:
    """Return the summary as a few lines."""
    from agent.batch import cost_in_words, replies_in_words, unsolved_in_words

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


@declare(
    "batch",
    settings=BATCH_SETTINGS,
    ending="""
    Example (the same command goes on where it was stopped):
      agent batch --dataset swe.jsonl --repos ./repositories \\
          --output preds.json --workers 4 --max-total-cost 20

    Exit codes: 0 all done, 1 some set aside, 2 usage or unusable rows, 8 budget,
    9 provider, 10 sandbox or disk, 130 interrupted.
    """,
)
@dataset_options
@path_option("--output", "-o", help="Predictions, replaced after every instance.", required=True)
@click.option(
    "--format", "form", type=click.Choice(["dict", "list", "jsonl"]),
    help="Form of the predictions (dict; jsonl where the name ends so).",
)  # fmt: skip
@path_option("--run", help="Folder to go on from (beside the output: NAME.run).")
@selection_options
@click.option(
    "--workers", type=click.IntRange(1, 1024), default=1, help="Instances solved at once."
)
@choice_option("--engine", ("local", "ray"), "local", "Solve here, or on a Ray cluster.")
@click.option("--address", metavar="HOST:PORT", help="Address of the cluster (auto: this machine).")
@click.option("--max-total-cost", type=click.FloatRange(0), help="USD for all instances together.")
@click.option(
    "--max-requests-per-minute", type=click.FloatRange(0.001),
    help="Chat requests of all workers together.",
)  # fmt: skip
@click.option(
    "--max-tries", type=click.IntRange(1), default=2, show_default=True,
    help="Crashes after which an instance is set aside.",
)  # fmt: skip
@click.option("--name", help="Value of `model_name_or_path` (patchshot+MODEL).")
@click.option("--force", is_flag=True, help="Go on although settings or data set have changed.")
@json_option
@quiet_option
@click.option("--verbose", "-v", is_flag=True, help="Show the output of Ray and its workers too.")
def command(flags: Mapping[str, Any], ids: tuple[str, ...], **given: Any) -> int:
    """Solve many issues of a data set; limits without "total" are those of one instance."""
    return run(BatchRequest(ids=ids, **given), flags)
