"""`agent eval patches`: whether predictions solve their instances."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.common import (
    guarded,
    print_value,
    refuse_overwriting,
    reporting,
    write_stdout,
)
from agent.errors import ConfigurationError, Status

if TYPE_CHECKING:
    from agent.scoring.instance import Means
    from agent.scoring.report import RunReport
    from agent.settings import Settings

# Seconds for one test run: what the harness gives an instance.
TEST_SECONDS = 1800.0

# Of the folder beside the report: what is kept of each instance.
FOLDER_SUFFIX = ".eval"


@dataclass(frozen=True, slots=True)
class PatchesRequest:
    """What is asked of one invocation, beside the settings. `None`: not given."""

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
    """Evaluate, write the report, print it, and give the exit code."""
    return guarded(lambda: _run(request, flags))


def _run(request: PatchesRequest, flags: Mapping[str, Any]) -> int:
    from agent.batch.dataset import make_selection
    from agent.scoring.run import GOLD, Plan, evaluate
    from agent.scoring.table import render
    from agent.settings import load

    settings = load(flags)
    gold = request.predictions == GOLD
    predictions = None if gold else Path(request.predictions)
    _check_output(request, predictions)
    plan = Plan(
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
        write_stdout(render(done.report).encode("utf-8", "replace"))
    return Status.INTERRUPTED.exit_code if done.interrupted else exit_code(done.report)


def _check_output(request: PatchesRequest, predictions: Path | None) -> None:
    """Raises ConfigurationError where the report would replace what the command reads."""
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
    """0: everything that was asked for is known, resolved or not; else the gravest reason."""
    errors = {entry.error for entry in report.instances.values() if entry.error}
    if "sandbox" in errors:
        return Status.SANDBOX.exit_code
    if errors - {"row", "repository", "test-patch"}:
        return Status.CRASHED.exit_code
    return Status.USAGE.exit_code if errors or report.problems else 0


def _own_run(given: Path | None, predictions: Path | None) -> Path | None:
    """The folder with our verdicts: the one that is named, or the one beside the predictions."""
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
    from agent.environments.preparing import Environments
    from agent.environments.spec import read_spec
    from agent.scoring.instance import Means
    from agent.scoring.sandboxes import Sandboxes
    from agent.services.validation import make_sandbox
    from agent.settings import environment
    from agent.validation.running.bench import ValidationOptions

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
