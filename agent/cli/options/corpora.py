"""Options of corpora beside the code, and of the store that holds their vectors."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.cli.options.choices import Expand, Intents, StoreFallback

CORPORA = "Corpora"
CorpusOption = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus",
        metavar="NAME",
        help="code, history, docs, intent, memory: repeatable, or with commas between.",
        rich_help_panel=CORPORA,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where vectors are kept: sqlite:///F, lancedb:///DIR, qdrant://HOST, postgresql://... "
        "[PATCHSHOT_STORE].",
        rich_help_panel=CORPORA,
    ),
]
StoreFallbackOption = Annotated[
    StoreFallback | None,
    typer.Option(
        "--store-fallback",
        help="Where the store cannot be reached: the one in the cache folder, or stop. --list, "
        "--drop and --fresh always stop [PATCHSHOT_STORE_FALLBACK].",
        rich_help_panel=CORPORA,
    ),
]
AtLeastOption = Annotated[
    float | None,
    typer.Option(
        "--at-least",
        min=0,
        max=1,
        help="Only what is so similar to the query, by vectors: 1 the same, 0.5 unrelated.",
        rich_help_panel=CORPORA,
    ),
]
ExpandOption = Annotated[
    Expand,
    typer.Option(
        "--expand",
        help="Add to the query: words that go with its own in this project, or a model's.",
        rich_help_panel=CORPORA,
    ),
]
IntentsOption = Annotated[
    Intents,
    typer.Option(
        "--intents",
        help="Who writes intents: templates, or the configured model, within --max-cost.",
        rich_help_panel=CORPORA,
    ),
]
