"""Options that commands of all kinds have: what is worked on, and how much is said."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options.choices import Dirty

RepoOption = Annotated[Path, typer.Option("--repo", help="The target git repository.")]
ProblemOption = Annotated[
    str, typer.Option("--problem", help="The issue: a file, `-` for stdin, or a URL.")
]
CommitOption = Annotated[
    str | None, typer.Option("--commit", help="Work on this commit instead of the work tree.")
]
DirtyOption = Annotated[
    Dirty, typer.Option("--dirty", help="Uncommitted changes: part of the base, ignored, refused.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Also each model call, and the receipt: why each chunk is in."
    ),
]
