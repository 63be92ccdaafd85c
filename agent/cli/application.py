"""The command line: what `agent` takes. Each command parses here and runs in `agent.commands`.

Nothing heavy is imported: `agent --help` is to be instant.
"""

from __future__ import annotations

from typing import Annotated

import typer

from agent.cli import evaluating, looking, running, solving, upkeep

__all__ = ["app"]

app = typer.Typer(
    name="agent",
    help="From an issue to a validated patch in one model call.",
    epilog="Set PATCHSHOT_BASE_URL, PATCHSHOT_API_KEY and PATCHSHOT_MODEL, or OPENAI_API_KEY; "
    "`agent doctor` shows what works here.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# In the order of `agent --help`.
app.add_typer(solving.commands)
app.add_typer(looking.commands)
app.add_typer(running.commands)
app.add_typer(evaluating.commands, name="eval")
app.add_typer(upkeep.commands)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from agent import __version__

        typer.echo(__version__)
        raise typer.Exit
