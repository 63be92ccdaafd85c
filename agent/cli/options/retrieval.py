"""Options of ranking and packing."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.cli.options.choices import Embed

CONTEXT = "Retrieval and context"
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Named settings: default, lexical or original.",
        rich_help_panel=CONTEXT,
    ),
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="GROUP",
        help="Leave out a group of features, or `ranker`: then the plain sum decides "
        "(repeatable) [PATCHSHOT_WITHOUT, with commas].",
        rich_help_panel=CONTEXT,
    ),
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
    typer.Option(
        "--max-chunks",
        help="At most so many chunks (30 for each 6,000 tokens).",
        rich_help_panel=CONTEXT,
    ),
]
ExplainOption = Annotated[
    bool,
    typer.Option(
        "--explain",
        "--verbose",
        "-v",
        help="Below each chunk what its score consists of: signed parts that add up to it.",
    ),
]
