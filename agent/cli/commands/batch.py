"""Commands for many issues: `agent batch`, and `agent report` of its runs."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import (
    counted,
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
from agent.cli.options import command as declare
from agent.errors import ConfigurationError
from agent.shared.files import is_report
from agent.shared.terminal import say

if TYPE_CHECKING:
    from agent.batch import Summary
    from agent.report import ReportSummary


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
def batch_command(
    flags: Mapping[str, Any],
    output: Path,
    engine: str,
    address: str | None,
    json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Solve many issues of a data set; limits without "total" are those of one instance."""
    from agent.batch import BatchPlan, progress_for, run_batch
    from agent.datasets import make_selection

    if address is not None and engine != "ray":
        raise ConfigurationError(
            f"--address {address} is of a Ray cluster: give --engine ray too, or neither"
        )
    environments = load_settings(flags).environments
    refuse_overwriting(output, {"--dataset": given["dataset"], "--environments": environments})
    plan = BatchPlan(
        dataset=given["dataset"],
        repositories=given["repos"],
        output=output,
        flags={name: _plain(value) for name, value in flags.items()},
        run=given["run"],
        form=given["form"],
        selection=make_selection(given["ids"], given["window"], given["match"]),
        workers=given["workers"],
        total_cost=given["max_total_cost"],
        per_minute=given["max_requests_per_minute"],
        max_tries=given["max_tries"],
        name=given["name"],
        force=given["force"],
        engine=engine,  # type: ignore[arg-type]
        address=address or "auto",
        verbose=given["verbose"],
    )
    summary = run_batch(plan, progress_for(quiet=quiet))
    if json:
        print_value(summary.model_dump(mode="json"))
    else:
        write_stdout(batch_in_words(summary))
    if summary.message:
        say(f"agent: {make_redactor()(summary.message)}")
    return summary.exit_code


def _plain(value: Any) -> Any:
    """Convert the value of a flag to plain JSON, which is sent to the workers."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def batch_in_words(summary: Summary) -> str:
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


DEFAULT_OUTPUT = Path("report.html")


@declare(
    "report",
    ending="""
    Example:
      agent report preds.run --evaluation evaluation.json --output report.html

    Of one issue:
      agent solve --problem issue.md --json > result.json
      agent report result.json
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@path_option("--output", "-o", help="The file to write (report.html).")
@path_option("--evaluation", help="Report of `agent eval patches`, shown beside.")
@click.option("--bodies/--no-bodies", default=True, help="With prompts and replies, or without.")
@choice_option("--open", ("auto", "yes", "no"), "auto", "Open a browser; auto: at a desktop.")
@json_option
def report_command(
    run: Path,
    output: Path | None,
    evaluation: Path | None,
    bodies: bool,
    open: str,
    json: bool,
) -> int:
    """Write a run as one HTML file that loads nothing: figures, table, a page an instance.

    RUN is the folder of a run (preds.run), the beginning of an id in `agent runs`, or a file with
    the output of `agent solve --json`.
    """
    from agent.report import Cleaner, load, load_evaluation, render, summarise
    from agent.results.kept import find_run, is_id, runs_folder

    if not run.exists() and is_id(str(run)):
        run = find_run(runs_folder(), str(run)).folder
    place = _checked(output, {"RUN": run, "--evaluation": evaluation})
    clean = Cleaner(make_redactor())
    found = load(run, load_evaluation(evaluation) if evaluation else None, clean)
    summary = summarise(found)
    size = _write(place, render(found, summary, clean, bodies=bodies))
    summary = summary.model_copy(update={"output": str(place), "bytes": size})
    if json:
        print_value(summary.model_dump(mode="json"))
    else:
        write_stdout(report_in_words(summary))
    if summary.live:
        say("agent: the run is still going; the report tells what there is so far")
    _show(place, open)
    return 0


def _checked(given: Path | None, inputs: Mapping[str, Path | None]) -> Path:
    """Return the output path. Raises ConfigurationError if it cannot or should not be written."""
    output = given or DEFAULT_OUTPUT
    refuse_overwriting(output, inputs)
    if output.is_dir():
        raise ConfigurationError(f"--output {output}: is a folder; give the name of a file in it")
    if not output.parent.is_dir():
        raise ConfigurationError(f"--output {output}: there is no folder {output.parent}; make it")
    if given is None and output.exists() and not is_report(output):
        raise ConfigurationError(
            f"{output} exists and is not a report of this command: name it with --output to "
            "replace it"
        )
    if output.is_file() and not (_is_page(output) or is_report(output)):
        raise ConfigurationError(
            f"--output {output}: exists, and is not a report of this command: give another name, "
            "such as report.html"
        )
    return output


def _is_page(path: Path) -> bool:
    """Whether the existing file is HTML by its name or empty, so that `--output` may replace it."""
    return path.suffix.lower() in (".html", ".htm") or not path.stat().st_size


def _write(output: Path, parts: Iterator[bytes]) -> int:
    """Write the whole page or nothing. Return its size in bytes."""
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for part in parts:
            size += len(part)
            yield part

    if output.exists() and not output.is_file():  # a pipe or /dev/null cannot be replaced
        with output.open("wb") as file:
            file.writelines(counted())
    else:
        _replace(output, counted())
    return size


def _replace(output: Path, parts: Iterator[bytes]) -> None:
    """Replace `output` atomically. Errors name `output`, not the temporary file beside it."""
    from agent.shared.files import replace_file

    try:
        replace_file(output, parts)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ConfigurationError(
            f"--output {output}: cannot be written ({error.strerror or error}); give another place"
        ) from None


def report_in_words(summary: ReportSummary) -> str:
    """Return the figures as a few lines."""
    from agent.report import dollars, seconds

    causes = ", ".join(f"{cause.group} {cause.count}" for cause in summary.causes)
    lines = [
        f"{summary.finished} of {counted(summary.instances, 'instance')} finished"
        + (f": {causes}" if causes else "")
    ]
    if summary.evaluated:
        lines.append(f"{summary.resolved} of {summary.evaluated} evaluated are resolved")
    calls, cost = counted(summary.calls, "call"), dollars(summary.cost_usd)
    lines += [
        f"{calls}, {cost}, {seconds(summary.seconds)} in all",
        f"report in {summary.output} ({summary.bytes / 1e6:.1f} MB)",
    ]
    return "\n".join(lines) + "\n"


def _show(output: Path, when: str) -> None:
    """Open the page in a browser. "auto" does so only for a user at a desktop."""
    if when == "no" or (when == "auto" and not _at_a_desktop()):
        return
    import webbrowser

    if not webbrowser.open(output.resolve().as_uri()) and when == "yes":
        say("agent: no browser could be started; open the file yourself")


def _at_a_desktop() -> bool:
    import sys

    from agent.settings import environment

    return sys.stdout.isatty() and bool(environment(("DISPLAY", "WAYLAND_DISPLAY")))
