"""Options for vectors that other programs have computed."""

from __future__ import annotations

from typing import Annotated

import typer

PRECOMPUTED = "Precomputed vectors"
ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--precomputed",
        metavar="FOLDER",
        help="Put this folder's vectors (one JSON array a file) into the store instead; no "
        "repository is read.",
        rich_help_panel=PRECOMPUTED,
    ),
]
CollectionOption = Annotated[
    str | None,
    typer.Option(
        "--collection",
        metavar="NAME",
        help="Where in the store they go (the folder's name; a digest is added where that cannot "
        "be kept).",
        rich_help_panel=PRECOMPUTED,
    ),
]
MadeByOption = Annotated[
    str | None,
    typer.Option(
        "--made-by",
        metavar="MODEL",
        help="What computed them; queries in words by another model are refused then.",
        rich_help_panel=PRECOMPUTED,
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Read the folder and say what would be put there, and what is there; write nothing.",
        rich_help_panel=PRECOMPUTED,
    ),
]
PrecomputedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--precomputed",
        metavar="FOLDER|NAME",
        help="Search precomputed vectors instead: of a folder, or of a collection of the store.",
        rich_help_panel=PRECOMPUTED,
    ),
]
VectorOption = Annotated[
    str | None,
    typer.Option(
        "--vector",
        metavar="FILE",
        help="The query's vector, a JSON array; `-` for stdin. Without it the query in words is "
        "embedded by the model of the settings, which must be theirs.",
        rich_help_panel=PRECOMPUTED,
    ),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="TAG",
        help="Only vectors that have it (repeatable: all of them).",
        rich_help_panel=PRECOMPUTED,
    ),
]
