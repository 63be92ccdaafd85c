"""Options of tests and of the sandbox they run in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options.choices import Backend

CHECK = "Validation"
TestsOption = Annotated[
    bool | None,
    typer.Option("--tests/--no-tests", help="Run tests at all.", rich_help_panel=CHECK),
]
TestCmdOption = Annotated[
    str | None,
    typer.Option(help="Test command, e.g. `pytest tests/unit`.", rich_help_panel=CHECK),
]
TestTimeoutOption = Annotated[
    float | None, typer.Option(help="Seconds for one test run (300).", rich_help_panel=CHECK)
]
JudgeTimeoutOption = Annotated[
    float | None, typer.Option(help="Seconds for one test run (1800).", rich_help_panel=CHECK)
]
PythonOption = Annotated[
    Path | None, typer.Option(help="The target's interpreter.", rich_help_panel=CHECK)
]
EnvironmentsOption = Annotated[
    Path | None,
    typer.Option(
        "--environments",
        metavar="SPEC",
        help="TOML: Python, packages and test command of each project (docs/eval-patches.md).",
        rich_help_panel=CHECK,
    ),
]
FailToPassOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID",
        help="A test that the fix must turn; given ones decide alone (repeatable).",
        rich_help_panel=CHECK,
    ),
]
PassToPassOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID", help="A test that must go on passing (repeatable).", rich_help_panel=CHECK
    ),
]
TestsFromOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Both from a JSON row with FAIL_TO_PASS and PASS_TO_PASS.",
        rich_help_panel=CHECK,
    ),
]
RunCacheOption = Annotated[
    bool | None,
    typer.Option(
        "--run-cache/--no-run-cache",
        help="Keep test runs of the base between solves.",
        rich_help_panel=CHECK,
    ),
]
AcceptUnverifiedOption = Annotated[
    bool | None,
    typer.Option(
        "--accept-unverified",
        help="Exit 0 also when no test could be run.",
        rich_help_panel=CHECK,
    ),
]
SandboxOption = Annotated[
    Backend | None,
    typer.Option(
        "--sandbox",
        help="What isolates the target's code; auto: bwrap, or a container with --image.",
        rich_help_panel=CHECK,
    ),
]
ImageOption = Annotated[
    str | None,
    typer.Option(
        help="Run in containers (podman, docker) of this image, which must be here.",
        rich_help_panel=CHECK,
    ),
]
UnsafeNoSandboxOption = Annotated[
    bool | None,
    typer.Option(
        "--unsafe-no-sandbox",
        help="Run the target's code without isolation.",
        rich_help_panel=CHECK,
    ),
]
