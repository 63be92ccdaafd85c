"""`agent eval patches` and `agent eval retrieval`: measure on issues whose answer is known."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cli import options
from agent.cli.commands import common
from agent.errors import ConfigurationError, Status

if TYPE_CHECKING:
    from agent.evaluation.patches import Means, RunReport
    from agent.settings import Settings

# Time limit of one test run in seconds, as in the SWE-bench harness.
TEST_SECONDS = 1800.0

# Token budgets that context recall is shown at.
BUDGETS = (3000, 6000, 12_000, 24_000)

# Suffix of the folder beside the report, which keeps the results of each instance.
FOLDER_SUFFIX = ".eval"


@options.command(
    "patches",
    settings=("test_cmd", "test_timeout", "python", *options.SANDBOX_SETTINGS, "unsafe_no_sandbox"),
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
@options.text("--predictions -p", "FILE|gold", "preds.json, or all_preds.jsonl.", required=True)
@options.dataset
@options.path("--output -o", "The report; NAME.eval keeps each instance.", required=True)
@options.path("--environments", "TOML file: Python, packages, test command (docs/guide/tests.md).")
@options.text("--image-template", "NAME", "Container image, with {instance_id}, {id_1776}, {repo}.")
@options.path("--run", "Folder of `agent batch` with our verdicts (beside the predictions).")
@options.selection
@options.number("--workers", 1, "Instances at once.", 1)
@options.flag("--restart", "Evaluate again what is there already.")
@options.as_json
@options.quiet
def patches_command(
    flags: Mapping[str, Any], predictions: str, output: Path, json: bool, **given: Any
) -> int:
    """Judge predictions by the tests of their rows, and our verdicts by the outcome."""
    from agent.datasets import make_selection
    from agent.evaluation.patches import GOLD, ScoringPlan, evaluate, render

    settings = common.load_settings(flags)
    file = None if predictions == GOLD else Path(predictions)
    inputs = {"--predictions": file, "--environments": given["environments"]}
    common.refuse_overwriting(output, {"--dataset": given["dataset"], **inputs})
    plan = ScoringPlan(
        predictions=file,
        dataset=given["dataset"],
        repositories=given["repos"],
        output=output,
        folder=output.with_suffix(FOLDER_SUFFIX),
        run=_own_run(given["run"], file),
        selection=make_selection(given["ids"], given["window"], given["match"]),
        workers=given["workers"],
        fresh=given["restart"],
    )
    with common.reporting(quiet=given["quiet"]) as reporter:
        done = evaluate(plan, partial(_means, settings, given), reporter)
    common.print_result(done.model_dump(mode="json"), render(done), json=json)
    return Status.INTERRUPTED.exit_code if done.pending_ids else exit_code(done)


def exit_code(report: RunReport) -> int:
    """Return 0 if every instance has an outcome, else the code of the gravest problem."""
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
    settings: Settings,
    given: Mapping[str, Any],
    note: Callable[[str], None],
    stop: threading.Event,
) -> Means:
    from agent.evaluation.patches import Means, Sandboxes
    from agent.settings import environment
    from agent.verify import ValidationOptions
    from agent.verify.environments import Environments, read_spec
    from agent.wiring import make_sandbox

    def make(image: str | None) -> Any:
        update = {} if image is None else {"image": image, "sandbox": "auto"}
        return make_sandbox(settings.model_copy(update=update))

    environments = None
    if given["environments"] is not None:
        if settings.python is not None:
            raise ConfigurationError(
                "--environments and --python were both given: name the Python in the spec"
            )
        spec = read_spec(given["environments"])
        environments = Environments(spec, settings.cache_dir, note=note, cancel=stop)
    own_limit = "test_timeout" in settings.model_fields_set
    limits = ValidationOptions(
        python=settings.python,
        test_cmd=settings.test_cmd,
        timeout=settings.test_timeout if own_limit else TEST_SECONDS,
        virtual_env=environment(("VIRTUAL_ENV",)).get("VIRTUAL_ENV"),
    )
    sandboxes = Sandboxes(make, given["image_template"] or settings.image)
    return Means(sandboxes, limits, environments)


@options.command(
    "retrieval",
    settings=options.CONTEXT_SETTINGS,
    ending="""
    Example:
      agent eval retrieval --dataset issues.jsonl --repos ./repositories \\
          --output rows.jsonl --preset lexical
    """,
)
@options.dataset
@options.path("--output -o", "One JSON row an instance.", required=True)
@options.choice("--split", ("tune", "held-out", "all"), "all", "Whole projects: tune on 60%.")
@options.number("--limit -n", 1, "Only the first so many.")
@options.number("--workers", 1, "Processes (one a core).")
@options.as_json
@options.quiet
def retrieval_command(
    flags: Mapping[str, Any], output: Path, json: bool, quiet: bool, **given: Any
) -> int:
    """Measure how well retrieval finds the code to change, on issues whose answer is known."""
    from agent.evaluation.retrieval import RetrievalPlan, evaluate, render
    from agent.wiring import retrieval_options

    settings = common.load_settings(flags)
    retrieval_options(settings)  # reports unknown names before hours of work
    plan = RetrievalPlan(
        repositories=given.pop("repos"),
        output=output,
        settings=settings,
        flags=flags,
        budgets=BUDGETS,
        **given,
    )
    common.refuse_overwriting(output, {"--dataset": plan.dataset})
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # workers are stopped
    with common.reporting(quiet=quiet) as reporter:
        evaluation = evaluate(plan, reporter)
    common.print_result(asdict(evaluation), render(evaluation), json=json)
    if evaluation.instances == len(evaluation.skipped):
        raise ConfigurationError("every instance was skipped; see the reasons, check --repos")
    return 0
