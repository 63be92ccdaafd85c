"""The command group `agent`. It imports the module of a command when the command is called.

This module imports only click, so that `agent --help` is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

__all__ = ["app"]

_EVALUATIONS = {
    "retrieval": (
        "agent.cli.commands.eval_retrieval",
        "Measure how well retrieval finds the code to change.",
    ),
    "patches": ("agent.cli.commands.eval_patches", "Judge predictions by the tests of their rows."),
}

# Command name -> module and help line, in the order of `agent --help`. Each module defines its
# command as `command`, or as the name behind the colon.
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "solve": ("agent.cli.commands.solve", "Solve an issue; the diff goes to stdout."),
    "apply": ("agent.cli.commands.apply", "Apply a kept run, or a saved model reply."),
    "undo": ("agent.cli.commands.undo", "Take back what --apply wrote."),
    "runs": ("agent.cli.commands.runs", "List the runs that are kept on this machine."),
    "show": ("agent.cli.commands.show", "Show a kept run: issue, verdict, cost, diff."),
    "accept": ("agent.cli.commands.feedback:accept", "Say that a kept run's patch is right."),
    "reject": ("agent.cli.commands.feedback:reject", "Say that a kept run's patch is wrong."),
    "retry": ("agent.cli.commands.retry", "Go on from a kept run with a comment, for one call."),
    "verify": ("agent.cli.commands.verify", "Judge a patch by the tests before and after it."),
    "demo": ("agent.cli.commands.demo", "Solve an issue of a bundled project, offline."),
    "search": ("agent.cli.commands.search", "Show what ranks highest, and why."),
    "context": ("agent.cli.commands.context", "Show the context that a model would be shown."),
    "plan": ("agent.cli.commands.plan", "Show a plan for an issue: what to look for, and where."),
    "index": ("agent.cli.commands.index", "Build or refresh the cache of code and commits."),
    "batch": ("agent.cli.commands.batch", "Solve many issues of a data set."),
    "report": ("agent.cli.commands.report", "Write a run as one HTML file."),
    "eval": ("", "Measure parts of the program on issues whose answer is known."),
    "config": ("agent.cli.commands.config", "Show every setting and where its value comes from."),
    "doctor": ("agent.cli.commands.doctor", "Say what works on this machine."),
    "mcp": ("agent.cli.commands.mcp", "Serve other agents over the Model Context Protocol."),
    "bundle": ("agent.cli.commands.bundle", "Write the program as one file, for miners."),
}


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is called."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **others: Any) -> None:
        super().__init__(*args, **others)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, or None."""
        if cmd_name == "eval" and "eval" in self.table:
            return evaluations
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command table without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does, and suggest the nearest name if there is no such
        command.
        """
        if args and args[0] not in self.table and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], list(self.table), n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


_HELP = {"help_option_names": ["-h", "--help"]}

evaluations = LazyGroup(
    "eval",
    table=_EVALUATIONS,
    help="Measure parts of the program on data sets of issues whose answer is known.",
    no_args_is_help=True,
    context_settings=_HELP,
)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from agent import __version__

        click.echo(__version__)
        ctx.exit()


app = LazyGroup(
    "agent",
    table=_COMMANDS,
    help="From an issue to a validated patch in one model call.",
    epilog="Set PATCHSHOT_BASE_URL, PATCHSHOT_API_KEY and PATCHSHOT_MODEL, or OPENAI_API_KEY; "
    "`agent doctor` shows what works here.",
    no_args_is_help=True,
    context_settings=_HELP,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Print the version.",
        )
    ],
)
