"""Options of the patch: what a reply may change, and where it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Also write the diff here, as soon as there is one."),
]
ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Write the accepted patch into the work tree.")
]
RememberOption = Annotated[
    bool | None,
    typer.Option(
        "--remember",
        help="Keep the accepted patch on this machine, for `agent search --corpus memory`.",
    ),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", help="Protected path that edits may touch (repeatable)."),
]
NoRepairOption = Annotated[
    list[str] | None,
    typer.Option(
        "--no-repair",
        help="Leave a repair or lenient match tier out: its name, or `all` (repeatable).",
    ),
]
WithTestOption = Annotated[
    bool | None,
    typer.Option("--with-test", help="Keep the reply's reproduction test in the diff."),
]
IncludeTestOption = Annotated[bool | None, typer.Option("--include-test", hidden=True)]
