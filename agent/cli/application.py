"""The command group `agent`. It imports the module of a command when the command is called.

This module imports only click, so that `agent --help` is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from agent import __version__

__all__ = ["app"]

# Command name -> module below `agent.cli.commands` and help line, in the order of `agent --help`.
# What the colon names is the command.
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "solve": ("solve:solve_command", "Solve an issue; the diff goes to stdout."),
    "reproduce": ("reproduce:reproduce_command", "Write a test that shows an issue."),
    "apply": ("patches:apply_command", "Apply a kept run, or a saved model reply."),
    "undo": ("patches:undo_command", "Take back what --apply wrote."),
    "runs": ("runs:runs_command", "List the runs that are kept on this machine."),
    "show": ("runs:show_command", "Show a kept run: issue, verdict, cost, diff."),
    "accept": ("runs:accept", "Say that a kept run's patch is right."),
    "reject": ("runs:reject", "Say that a kept run's patch is wrong."),
    "retry": ("solve:retry_command", "Go on from a kept run with a comment, for one call."),
    "verify": ("patches:verify_command", "Judge a patch by the tests before and after it."),
    "demo": ("solve:demo_command", "Solve an issue of a bundled project, offline."),
    "search": ("search:search_command", "Show what ranks highest, and why."),
    "context": ("search:context_command", "Show the context that a model would be shown."),
    "plan": ("search:plan_command", "Show a plan for an issue: what to look for, and where."),
    "index": ("index:index_command", "Build or refresh the cache of code and commits."),
    "batch": ("batch:batch_command", "Solve many issues of a data set."),
    "report": ("batch:report_command", "Write a run as one HTML file."),
    "eval": (":evaluations", "Measure parts of the program on issues whose answer is known."),
    "config": ("machine:config_command", "Show every setting and where its value comes from."),
    "trust": ("machine:trust_command", "Let a repository's file set what runs in the sandbox."),
    "doctor": ("machine:doctor_command", "Say what works on this machine."),
    "mcp": ("mcp:mcp_command", "Serve other agents over the Model Context Protocol."),
    "bundle": ("machine:bundle_command", "Write the program as one file, for miners."),
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
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name][0].partition(":")
        place = f"agent.cli.commands.{module}" if module else "agent.cli.application"
        command: click.Command = getattr(import_module(place), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command table without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])


_HELP = {"help_option_names": ["-h", "--help"]}

evaluations = LazyGroup(
    "eval",
    table={
        "retrieval": (
            "evaluation:retrieval_command",
            "Measure how well retrieval finds the code to change.",
        ),
        "patches": ("evaluation:patches_command", "Judge predictions by the tests of their rows."),
    },
    help="Measure parts of the program on data sets of issues whose answer is known.",
    no_args_is_help=True,
    context_settings=_HELP,
)

app = LazyGroup(
    "agent",
    table=_COMMANDS,
    help="From an issue to a validated patch in one model call.",
    epilog="Set PATCHSHOT_BASE_URL, PATCHSHOT_API_KEY and PATCHSHOT_MODEL, or OPENAI_API_KEY; "
    "`agent doctor` shows what works here.",
    no_args_is_help=True,
    context_settings=_HELP,
)
click.version_option(__version__, message="%(version)s", help="Print the version.")(app)
