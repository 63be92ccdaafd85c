"""`agent eval patches`: run the tests that decide whether predictions solve their instances."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    SANDBOX_SETTINGS,
    dataset_options,
    json_option,
    path_option,
    quiet_option,
    selection_options,
)
from agent.cli.options import (
    command as declare,
)
from agent.errors import ConfigurationError, Status

if TYPE_CHECKING:
    from agent.evaluation.patches import Means, RunReport
    from agent.settings import Settings

# Time limit of one test run in seconds, as in the SWE-bench harness.
TEST_SECONDS = 1800.0

# Suffix of the folder beside the report, which keeps the results of each instance.
FOLDER_SUFFIX = ".eval"


@dataclass(frozen=True, slots=True)
class PatchesRequest:
    """Arguments of `agent eval patches` that are not settings. None means not given."""

    predictions: str
    dataset: Path
    repos: Path
    output: Path
    environments: Path | None = None
    image_template: str | None = None
    run: Path | None = None
    ids: tuple[str, ...] = ()
    window: str | None = None
    match: str | None = None
    workers: int = 1
    check_dataset: bool = False
    restart: bool = False
    json: bool = False
    quiet: bool = False


def run(request: PatchesRequest, flags: Mapping[str, Any]) -> int:
    """Evaluate, write the report, print it, and return the exit code."""
    return guarded(lambda: _run(request, flags), flags=flags)


def _run(request: PatchesRequest, flags: Mapping[str, Any]) -> int:
    from agent.datasets import make_selection
    from agent.evaluation.patches import GOLD, ScoringPlan, evaluate, render

    settings = load_settings(flags)
    gold = request.predictions == GOLD
    predictions = None if gold else Path(request.predictions)
    _check_output(request, predictions)
    plan = ScoringPlan(
        predictions=predictions,
        dataset=request.dataset,
        repositories=request.repos,
        output=request.output,
        folder=request.output.with_suffix(FOLDER_SUFFIX),
        run=_own_run(request.run, predictions),
        selection=make_selection(request.ids, request.window, request.match),
        workers=request.workers,
        fresh=request.restart,
    )
    with reporting(quiet=request.quiet) as reporter:
        done = evaluate(plan, lambda note, stop: _means(request, settings, note, stop), reporter)
    if request.json:
        print_value(done.report.model_dump(mode="json"))
    else:
        write_stdout(render(done.report))
    return Status.INTERRUPTED.exit_code if done.interrupted else exit_code(done.report)


def _check_output(request: PatchesRequest, predictions: Path | None) -> None:
    """Raise ConfigurationError if the report would overwrite an input of the command."""
    inputs = {
        "--dataset": request.dataset,
        "--predictions": predictions,
        "--environments": request.environments,
    }
    refuse_overwriting(request.output, inputs)
    if request.output.suffix == FOLDER_SUFFIX:
        raise ConfigurationError(
            f"--output {request.output}: that is the name of the folder beside the report; give "
            "the name of a file, such as evaluation.json"
        )


def exit_code(report: RunReport) -> int:
    """Return 0 if every instance has an outcome, resolved or not, else the code of the gravest
    problem.
    """
    errors = {entry.error for entry in report.instances.values() if entry.error}
    if "sandbox" in errors:
        return Status.SANDBOX.exit_code
    if errors - {"row", "repository", "test-patch"}:
        return Status.CRASHED.exit_code
    return Status.USAGE.exit_code if errors or report.problems else 0


def _own_run(given: Path | None, predictions: Path | None) -> Path | None:
    """Return the run folder with our verdicts: the given one, or the one beside the predictions."""
    if given is not None:
        if not (given / "instances").is_dir():
            raise ConfigurationError(f"--run {given}: no folder of a run of `agent batch`")
        return given
    beside = None if predictions is None else predictions.with_suffix(".run")
    return beside if beside is not None and (beside / "instances").is_dir() else None


def _means(
    request: PatchesRequest,
    settings: Settings,
    note: Callable[[str], None],
    stop: threading.Event,
) -> Means:
    from agent.evaluation.patches import Means, Sandboxes
    from agent.settings import environment
    from agent.verify import ValidationOptions
    from agent.verify.environments import Environments, read_spec
    from agent.wiring import make_sandbox

    def make(image: str | None) -> Any:
        return make_sandbox(settings if image is None else _with_image(settings, image))

    environments = None
    if request.environments is not None:
        if settings.python is not None:
            raise ConfigurationError(
                "--environments and --python were both given: name the Python in the spec"
            )
        spec = read_spec(request.environments)
        environments = Environments(spec, settings.cache_dir, note=note, cancel=stop)
    options = ValidationOptions(
        python=settings.python,
        test_cmd=settings.test_cmd,
        timeout=_seconds(settings),
        virtual_env=environment(("VIRTUAL_ENV",)).get("VIRTUAL_ENV"),
    )
    sandboxes = Sandboxes(make, request.image_template or settings.image)
    return Means(sandboxes, options, environments, check=request.check_dataset)


def _seconds(settings: Settings) -> float:
    given = "test_timeout" in settings.model_fields_set
    return settings.test_timeout if given else TEST_SECONDS


def _with_image(settings: Settings, image: str) -> Settings:
    return settings.model_copy(update={"image": image, "sandbox": "auto"})


@declare(
    "patches",
    settings=("test_cmd", "test_timeout", "python", *SANDBOX_SETTINGS, "unsafe_no_sandbox"),
    test_timeout="Seconds for one test run (1800).",
    ending="""
    Example (the same command goes on where it was stopped):
      agent eval patches --predictions preds.json --dataset swe.jsonl \\
          --repos ./repositories --environments environments.toml \\
          --output evaluation.json --workers 4

    Exit codes: 0 all evaluated, resolved or not, 1 some could not be
    (environment), 2 usage, or entries that cannot be used, 10 sandbox or disk,
    130 interrupted.
    """,
)
@click.option(
    "--predictions", "-p", required=True, metavar="FILE|gold",
    help="preds.json (dictionary or list) or all_preds.jsonl; `gold`: the rows' own patches.",
)  # fmt: skip
@dataset_options
@path_option(
    "--output", "-o", help="The report; results of instances lie in NAME.eval.", required=True
)
@path_option(
    "--environments",
    help="TOML file: Python, packages and test command of each project (docs/guide/tests.md).",
)
@click.option(
    "--image-template", metavar="NAME",
    help="A container image for each instance, with {instance_id}, {id_1776}, {repo}, {version}; "
    "it must be here, with the project in /testbed.",
)  # fmt: skip
@path_option("--run", help="Folder of `agent batch` with our verdicts (beside the predictions).")
@selection_options
@click.option("--workers", type=click.IntRange(1, 1024), default=1, help="Instances at once.")
@click.option(
    "--check-dataset", is_flag=True,
    help="Also run each row's tests without any patch and with its own patch.",
)  # fmt: skip
@click.option("--restart", is_flag=True, help="Evaluate again what is there already.")
@json_option
@quiet_option
def command(flags: Mapping[str, Any], **given: Any) -> int:
    """Judge predictions by the tests of their rows, and our verdicts by the outcome."""
    return run(PatchesRequest(**given), flags)
