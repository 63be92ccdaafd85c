"""`agent doctor` and `bundle`: what works here, and the program as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.endings import Command
from agent.cli.flags import leave, sandbox_flags
from agent.cli.options.common import JsonOption
from agent.cli.options.validation import ImageOption, SandboxOption

commands = typer.Typer()


@commands.command(
    cls=Command,
    epilog="""
    Example:
      agent doctor --json
    """,
)
def doctor(
    json: JsonOption = False,
    live: Annotated[
        bool, typer.Option("--live", help="Also make one real call to the model.")
    ] = False,
    sandbox: SandboxOption = None,
    image: ImageOption = None,
) -> None:
    """Say what works here: git, tokenizer, sandbox guarantees, model, embeddings."""
    from agent.commands import doctor as command

    leave(command.run(json=json, live=live, flags=sandbox_flags(sandbox, image)))


@commands.command(
    cls=Command,
    epilog="""
    Example:
      agent bundle --output agent.py
      agent bundle --check agent.py
    """,
)
def bundle(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the file here, then check it.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", help="Check this file against the contract instead.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write the program as one source file, for the miner contract (docs/miner.md)."""
    from agent.commands import bundle as command

    leave(command.run(command.BundleRequest(output, check, json)))
