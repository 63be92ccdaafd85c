"""`agent report`: a run, or one solve, as one HTML file."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

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
    from agent.pages.summary import ReportSummary

DEFAULT_OUTPUT = Path("report.html")


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What is asked of one invocation. `output` None: DEFAULT_OUTPUT."""

    run: Path
    output: Path | None = None
    evaluation: Path | None = None
    bodies: bool = True
    open: Literal["auto", "yes", "no"] = "auto"
    json: bool = False


def run(request: ReportRequest) -> int:
    """Write the page, print its figures, and give the exit code."""
    return guarded(lambda: _run(request))


def _run(request: ReportRequest) -> int:
    from agent.pages.evaluations import load_evaluation
    from agent.pages.rendering import render
    from agent.pages.run import load
    from agent.pages.summary import summarise
    from agent.pages.text import Cleaner

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
        write_stdout(in_words(summary).encode("utf-8", "replace"))
    if summary.live:
        say("agent: the run is still going; the report tells what there is so far")
    _show(output, request.open)
    return 0


def _checked(request: ReportRequest) -> Path:
    """Where to write. Raises ConfigurationError where nothing can be, or should be."""
    output = request.output or DEFAULT_OUTPUT
    refuse_overwriting(output, {"RUN": request.run, "--evaluation": request.evaluation})
    if output.is_dir():
        raise ConfigurationError(f"--output {output}: is a folder; give the name of a file in it")
    if not output.parent.is_dir():
        raise ConfigurationError(f"--output {output}: there is no folder {output.parent}; make it")
    if request.output is None and output.exists() and not _is_report(output):
        raise ConfigurationError(
            f"{output} is there and no report of this command: name it with --output to replace it"
        )
    if output.is_file() and not (_is_page(output) or _is_report(output)):
        raise ConfigurationError(
            f"--output {output}: is there, and is no report of this command: give another name, "
            "such as report.html"
        )
    return output


def _is_page(path: Path) -> bool:
    """Whether a file that is named with --output may be replaced whatever it holds."""
    return path.suffix.lower() in (".html", ".htm") or not path.stat().st_size


def _is_report(path: Path) -> bool:
    from agent.pages.rendering import MARK

    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK


def _write(output: Path, parts: Iterator[bytes]) -> int:
    """Write the page as a whole, or not at all; its size in bytes."""
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
    """As `replace_file`; what is wrong is told of `output`, not of the file made beside it."""
    from agent.durable import replace_file

    try:
        replace_file(output, parts)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ConfigurationError(
            f"--output {output}: cannot be written ({error.strerror or error}); give another place"
        ) from None


def in_words(summary: ReportSummary) -> str:
    """The figures as a few lines."""
    from agent.pages.words import dollars, seconds

    causes = ", ".join(f"{cause.group} {cause.count}" for cause in summary.causes)
    lines = [
        f"{summary.finished} of {summary.instances} instances finished"
        + (f": {causes}" if causes else "")
    ]
    if summary.evaluated:
        lines.append(f"{summary.resolved} of {summary.evaluated} evaluated are resolved")
    lines += [
        f"{summary.calls} calls, {dollars(summary.cost_usd)}, {seconds(summary.seconds)} in all",
        f"report in {summary.output} ({summary.bytes / 1e6:.1f} MB)",
    ]
    return "\n".join(lines) + "\n"


def _show(output: Path, wanted: Literal["auto", "yes", "no"]) -> None:
    """Open the page in a browser: "auto" only for a person at a desktop."""
    if wanted == "no" or (wanted == "auto" and not _at_a_desktop()):
        return
    import webbrowser

    if not webbrowser.open(output.resolve().as_uri()) and wanted == "yes":
        say("agent: no browser could be started; open the file yourself")


def _at_a_desktop() -> bool:
    import sys

    from agent.settings import environment

    return sys.stdout.isatty() and bool(environment(("DISPLAY", "WAYLAND_DISPLAY")))
