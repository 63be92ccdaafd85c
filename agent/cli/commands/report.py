"""`agent report`: write a run, or one solve, as one HTML file."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from agent.cli.commands.common import (
    counted,
    guarded,
    make_redactor,
    print_value,
    refuse_overwriting,
    write_stdout,
)
from agent.cli.options import choice_option, json_option, path_option
from agent.cli.options import command as declare
from agent.errors import ConfigurationError
from agent.shared.terminal import say

if TYPE_CHECKING:
    from agent.report import ReportSummary

DEFAULT_OUTPUT = Path("report.html")


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """Arguments of `agent report`. `output` None means DEFAULT_OUTPUT."""

    run: Path
    output: Path | None = None
    evaluation: Path | None = None
    bodies: bool = True
    open: Literal["auto", "yes", "no"] = "auto"
    json: bool = False


def run(request: ReportRequest) -> int:
    """Write the page, print its figures, and return the exit code."""
    return guarded(lambda: _run(request))


def _run(request: ReportRequest) -> int:
    from agent.report import Cleaner, load, load_evaluation, render, summarise

    request = _resolved(request)
    output = _checked(request)
    clean = Cleaner(make_redactor())
    evaluation = load_evaluation(request.evaluation) if request.evaluation else None
    found = load(request.run, evaluation, clean)
    summary = summarise(found)
    size = _write(output, render(found, summary, clean, bodies=request.bodies))
    summary = summary.model_copy(update={"output": str(output), "bytes": size})
    if request.json:
        print_value(summary.model_dump(mode="json"))
    else:
        write_stdout(in_words(summary))
    if summary.live:
        say("agent: the run is still going; the report tells what there is so far")
    _show(output, request.open)
    return 0


def _resolved(request: ReportRequest) -> ReportRequest:
    """Replace the beginning of a kept run's id by the run's folder. A path that exists wins."""
    from agent.results.kept import find_run, is_id, runs_folder

    name = str(request.run)
    if request.run.exists() or not is_id(name):
        return request
    return replace(request, run=find_run(runs_folder(), name).folder)


def _checked(request: ReportRequest) -> Path:
    """Return the output path. Raises ConfigurationError if it cannot or should not be written."""
    output = request.output or DEFAULT_OUTPUT
    refuse_overwriting(output, {"RUN": request.run, "--evaluation": request.evaluation})
    if output.is_dir():
        raise ConfigurationError(f"--output {output}: is a folder; give the name of a file in it")
    if not output.parent.is_dir():
        raise ConfigurationError(f"--output {output}: there is no folder {output.parent}; make it")
    if request.output is None and output.exists() and not _is_report(output):
        raise ConfigurationError(
            f"{output} exists and is not a report of this command: name it with --output to "
            "replace it"
        )
    if output.is_file() and not (_is_page(output) or _is_report(output)):
        raise ConfigurationError(
            f"--output {output}: exists, and is not a report of this command: give another name, "
            "such as report.html"
        )
    return output


def _is_page(path: Path) -> bool:
    """Whether the existing file is HTML by its name or empty, so that `--output` may replace it."""
    return path.suffix.lower() in (".html", ".htm") or not path.stat().st_size


def _is_report(path: Path) -> bool:
    from agent.report import MARK

    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK


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


def in_words(summary: ReportSummary) -> str:
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


def _show(output: Path, wanted: Literal["auto", "yes", "no"]) -> None:
    """Open the page in a browser. "auto" does so only for a user at a desktop."""
    if wanted == "no" or (wanted == "auto" and not _at_a_desktop()):
        return
    import webbrowser

    if not webbrowser.open(output.resolve().as_uri()) and wanted == "yes":
        say("agent: no browser could be started; open the file yourself")


def _at_a_desktop() -> bool:
    import sys

    from agent.settings import environment

    return sys.stdout.isatty() and bool(environment(("DISPLAY", "WAYLAND_DISPLAY")))


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
def command(**given: Any) -> int:
    """Write a run as one HTML file that loads nothing: figures, table, a page an instance.

    RUN is the folder of a run (preds.run), the beginning of an id in `agent runs`, or a file with
    the output of `agent solve --json`.
    """
    return run(ReportRequest(**given))
