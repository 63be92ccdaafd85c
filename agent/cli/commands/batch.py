"""Commands for many issues: `agent batch`, and `agent report` of its runs."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli import options
from agent.cli.commands import common
from agent.errors import ConfigurationError
from agent.shared.files import is_report, replace_file
from agent.shared.terminal import counted, say

if TYPE_CHECKING:
    from agent.report import ReportSummary


@options.command(
    "batch",
    settings=options.BATCH_SETTINGS,
    ending="""
    Example (the same command goes on where it was stopped):
      agent batch --dataset swe.jsonl --repos ./repositories \\
          --output preds.json --workers 4 --max-total-cost 20

    Exit codes: 0 all done, 1 some set aside, 2 usage or unusable rows, 8 budget,
    9 provider, 10 sandbox or disk, 130 interrupted.
    """,
)
@options.dataset
@options.path("--output -o", "Predictions: .json by id, or .jsonl.", required=True)
@options.path("--run", "Folder to go on from (beside the output: NAME.run).")
@options.selection
@options.number("--workers", 1, "Instances solved at once.", 1)
@options.choice("--engine", ("local", "ray"), "local", "Solve here, or on a Ray cluster.")
@options.text("--address", "HOST:PORT", "Address of the cluster (auto: this machine).")
@options.number("--max-total-cost total_cost", 0.0, "USD for all instances together.")
@options.number("--max-requests-per-minute per_minute", 0.001, "Chat requests of all workers.")
@options.number("--max-tries", 1, "Crashes after which an instance is set aside.", 2)
@options.text("--name", "TEXT", "Value of `model_name_or_path` (patchshot+MODEL).")
@options.flag("--force", "Go on although settings or data set have changed.")
@options.as_json
@options.quiet
def batch_command(
    flags: Mapping[str, Any], json: bool, quiet: bool, address: str | None, **given: Any
) -> int:
    """Solve many issues of a data set; limits without "total" are those of one instance."""
    from agent.batch import BatchPlan, Progress, run_batch
    from agent.datasets import make_selection

    if address is not None and given["engine"] != "ray":
        raise ConfigurationError(
            f"--address {address} is of a Ray cluster: give --engine ray too, or neither"
        )
    environments = common.load_settings(flags).environments
    inputs = {"--dataset": given["dataset"], "--environments": environments}
    common.refuse_overwriting(given["output"], inputs)
    plan = BatchPlan(
        repositories=given.pop("repos"),
        selection=make_selection(given.pop("ids"), given.pop("window"), given.pop("match")),
        flags=json_module.loads(json_module.dumps(dict(flags), default=str)),  # for the workers
        address=address or "auto",
        **given,
    )
    summary = run_batch(plan, Progress(quiet=quiet))
    common.print_result(summary.model_dump(mode="json"), summary.in_words(), json=json)
    if summary.message:
        say(f"agent: {common.make_redactor()(summary.message)}")
    return summary.exit_code


# ------------------------------------------------------------------------------------ agent report


@options.command(
    "report",
    ending="""
    Example, of a run of `agent batch` and of one issue:
      agent report preds.run --evaluation evaluation.json --output report.html
      agent report 3f2a
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@options.path("--output -o", "The file to write (report.html in the folder of the run).")
@options.path("--evaluation", "Report of `agent eval patches`, shown beside.")
@click.option("--bodies/--no-bodies", default=True, help="With prompts and replies, or without.")
@options.as_json
def report_command(
    run: Path, output: Path | None, evaluation: Path | None, bodies: bool, json: bool
) -> int:
    """Write a run as one HTML file that loads nothing: figures, table, a page an instance.

    RUN is the folder of a run (preds.run), the beginning of an id in `agent runs`, or a file with
    the output of `agent solve --json`.
    """
    from agent.report import Cleaner, load, load_evaluation, render, summarise
    from agent.results.kept import find_run, is_id, runs_folder

    if not run.exists() and is_id(str(run)):
        run = find_run(runs_folder(), str(run)).folder
    place = output or (run if run.is_dir() else run.parent) / "report.html"
    _check(place, {"RUN": run, "--evaluation": evaluation}, named=output is not None)
    clean = Cleaner(common.make_redactor())
    report = load(run, load_evaluation(evaluation) if evaluation else None, clean)
    summary = summarise(report)
    parts = render(report, summary, clean, bodies=bodies)
    replace_file(place, parts)
    summary = summary.model_copy(update={"output": str(place), "bytes": place.stat().st_size})
    common.print_result(summary.model_dump(mode="json"), report_in_words(summary), json=json)
    if summary.live:
        say("agent: the run is still going; the report tells what there is so far")
    return 0


def _check(output: Path, inputs: Mapping[str, Path | None], *, named: bool) -> None:
    """Raise ConfigurationError if the output cannot or should not be written.

    A file is replaced if it is a report, or if it was named and is HTML by its name.
    """
    common.refuse_overwriting(output, inputs)
    if not output.parent.is_dir():
        raise ConfigurationError(f"--output {output}: there is no folder {output.parent}; make it")
    if output.exists() and not is_report(output) and not (named and output.suffix == ".html"):
        raise ConfigurationError(
            f"--output {output}: exists, and is not a report of this command: give another name"
        )


def report_in_words(summary: ReportSummary) -> str:
    """Return the figures as a few lines."""
    from agent.report import dollars, seconds

    causes = ", ".join(f"{cause.group} {cause.count}" for cause in summary.causes)
    finished = f"{summary.finished} of {counted(summary.instances, 'instance')} finished"
    lines = [f"{finished}: {causes}" if causes else finished]
    if summary.evaluated:
        lines.append(f"{summary.resolved} of {summary.evaluated} evaluated are resolved")
    calls, cost = counted(summary.calls, "call"), dollars(summary.cost_usd)
    lines += [
        f"{calls}, {cost}, {seconds(summary.seconds)} in all",
        f"report in {summary.output} ({summary.bytes / 1e6:.1f} MB)",
    ]
    return "\n".join(lines) + "\n"
