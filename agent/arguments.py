"""The arguments that several commands share: choices, and options with their help."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer


class Dirty(enum.StrEnum):
    """What to do with uncommitted changes of the target."""

    INCLUDE = "include"
    IGNORE = "ignore"
    REFUSE = "refuse"


class Preset(enum.StrEnum):
    """Named retrieval settings."""

    DEFAULT = "default"
    LEXICAL = "lexical"
    ORIGINAL = "original"


class Embed(enum.StrEnum):
    """Where embeddings come from."""

    AUTO = "auto"
    OFF = "off"
    LOCAL = "local"
    REMOTE = "remote"


class Split(enum.StrEnum):
    """Which projects of a data set."""

    TUNE = "tune"
    HELD_OUT = "held-out"
    ALL = "all"


MODEL, CONTEXT, LIMITS, CHECK = "Model", "Retrieval and context", "Limits", "Validation"

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
    bool, typer.Option("--verbose", "-v", help="Also the receipt: why each chunk is in.")
]
PresetOption = Annotated[
    Preset | None, typer.Option("--preset", help="Named settings.", rich_help_panel=CONTEXT)
]
EmbedOption = Annotated[
    Embed | None,
    typer.Option(
        "--embed", help="`local` needs the extra patchshot[local].", rich_help_panel=CONTEXT
    ),
]
ContextTokensOption = Annotated[
    int | None,
    typer.Option("--context-tokens", help="Token budget (6000).", rich_help_panel=CONTEXT),
]
MaxChunksOption = Annotated[
    int | None,
    typer.Option("--max-chunks", help="At most so many chunks (30).", rich_help_panel=CONTEXT),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", help="Protected path that edits may touch (repeatable)."),
]
IncludeTestOption = Annotated[
    bool | None,
    typer.Option("--include-test", help="Keep the reply's reproduction test in the diff."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Also write the diff here, as soon as there is one."),
]
ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Write the accepted patch into the work tree.")
]
