"""`agent search`, `context` and `index`: what retrieval finds, and what it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.endings import Command
from agent.cli.flags import leave, retrieval_flags
from agent.cli.options.choices import Dirty, Expand, Intents
from agent.cli.options.common import (
    CommitOption,
    DirtyOption,
    JsonOption,
    ProblemOption,
    QuietOption,
    RepoOption,
)
from agent.cli.options.corpora import (
    CORPORA,
    AtLeastOption,
    CorpusOption,
    ExpandOption,
    IntentsOption,
    StoreFallbackOption,
    StoreOption,
)
from agent.cli.options.model import MaxCostOption
from agent.cli.options.precomputed import (
    CollectionOption,
    DryRunOption,
    ImportOption,
    MadeByOption,
    PrecomputedOption,
    TagOption,
    VectorOption,
)
from agent.cli.options.retrieval import (
    ContextTokensOption,
    EmbedOption,
    ExplainOption,
    MaxChunksOption,
    PresetOption,
    WithoutOption,
)

commands = typer.Typer()


@commands.command(
    cls=Command,
    epilog="""
    Example:
      agent search "where are cookies parsed" --repo ./target --explain

    What a part is worth:
      agent search --problem issue.md --without history --without ranker

    All corpora:
      agent search "expired cookies" --corpus code,docs,intent,history

    Vectors of another program:
      agent search --precomputed ./vectors --vector query.json
    """,
)
def search(
    query: Annotated[str | None, typer.Argument(help="Words, identifiers, a traceback.")] = None,
    problem: Annotated[
        str | None, typer.Option("--problem", help="Search for a whole issue instead.")
    ] = None,
    repo: RepoOption = Path(),
    commit: CommitOption = None,
    dirty: DirtyOption = Dirty.INCLUDE,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many results.")] = 20,
    preset: PresetOption = None,
    without: WithoutOption = None,
    embed: EmbedOption = None,
    corpus: CorpusOption = None,
    store: StoreOption = None,
    store_fallback: StoreFallbackOption = None,
    at_least: AtLeastOption = None,
    expand: ExpandOption = Expand.OFF,
    intents: IntentsOption = Intents.TEMPLATES,
    max_cost: MaxCostOption = None,
    precomputed: PrecomputedOption = None,
    vector: VectorOption = None,
    tag: TagOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    explain: ExplainOption = False,
) -> None:
    """Show what ranks highest, and why: chunks of code, and of other corpora beside them."""
    if precomputed or vector is not None or tag:
        given = dict(locals())
        from agent.commands import precomputed as vectors

        leave(vectors.search_by_options(given))
    from agent.commands import inspect
    from agent.commands.requests import InspectRequest, PoolRequest

    request = InspectRequest(problem, repo, commit, dirty.value, json, quiet, explain)
    flags = retrieval_flags(preset, without, embed) | {
        "store": store,
        "store_fallback": store_fallback and store_fallback.value,
        "max_cost": max_cost,
    }
    asked = PoolRequest(
        corpora=tuple(corpus or ()),
        at_least=at_least,
        expand=expand.value,
        by_model=intents is Intents.LLM,
    )
    leave(inspect.search(request, query, limit, flags, asked))


@commands.command(
    cls=Command,
    epilog="""
    Example:
      agent context --problem issue.md --repo ./target
    """,
)
def context(
    problem: ProblemOption,
    repo: RepoOption = Path(),
    commit: CommitOption = None,
    dirty: DirtyOption = Dirty.INCLUDE,
    preset: PresetOption = None,
    without: WithoutOption = None,
    embed: EmbedOption = None,
    context_tokens: ContextTokensOption = None,
    max_chunks: MaxChunksOption = None,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print the whole prompt instead, as it would be sent.")
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show the packed context and its receipt, as the model would be shown it; no model call."""
    from agent.commands import inspect
    from agent.commands.requests import InspectRequest

    request = InspectRequest(problem, repo, commit, dirty.value, json, quiet)
    flags = retrieval_flags(preset, without, embed, context_tokens, max_chunks)
    leave(inspect.context(request, flags, prompt=prompt))


@commands.command(
    cls=Command,
    epilog="""
    Example:
      agent index --repo ./target

    Other corpora too, in a store that a team shares:
      agent index --corpus code,docs,intent,history \\
          --store postgresql://HOST/DATABASE

    Vectors of another program:
      agent index --precomputed ./vectors --made-by MODEL
    """,
)
def index(
    repo: RepoOption = Path(),
    commit: CommitOption = None,
    dirty: DirtyOption = Dirty.INCLUDE,
    without: WithoutOption = None,
    embed: EmbedOption = None,
    corpus: CorpusOption = None,
    store: StoreOption = None,
    store_fallback: StoreFallbackOption = None,
    intents: IntentsOption = Intents.TEMPLATES,
    max_cost: MaxCostOption = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Remove this project's entries of these corpora from the store first.",
            rich_help_panel=CORPORA,
        ),
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Forget the accepted patches instead; a store keeps theirs.",
            rich_help_panel=CORPORA,
        ),
    ] = False,
    show: Annotated[
        bool,
        typer.Option(
            "--list", help="List the store's collections instead.", rich_help_panel=CORPORA
        ),
    ] = False,
    drop: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Drop a collection of the store instead.",
            rich_help_panel=CORPORA,
        ),
    ] = None,
    precomputed: ImportOption = None,
    collection: CollectionOption = None,
    made_by: MadeByOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build or refresh the cache of chunks and commits, and the vectors of other corpora."""
    if precomputed or collection is not None or made_by is not None or dry_run:
        given = dict(locals())
        from agent.commands import precomputed as vectors

        leave(vectors.import_by_options(given))
    from agent.commands import inspect
    from agent.commands.requests import InspectRequest, PoolRequest

    request = InspectRequest(None, repo, commit, dirty.value, json, quiet)
    flags = retrieval_flags(None, without, embed) | {
        "store": store,
        "store_fallback": store_fallback and store_fallback.value,
        "max_cost": max_cost,
    }
    asked = PoolRequest(
        corpora=tuple(corpus or ()),
        by_model=intents is Intents.LLM,
        fresh=fresh,
        forget=forget,
        show=show,
        drop=drop,
    )
    leave(inspect.index(request, flags, asked))
