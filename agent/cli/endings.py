"""How the help of a command ends: with examples that can be copied as they stand."""

from __future__ import annotations

from inspect import cleandoc
from textwrap import indent
from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose epilog is shown line by line as it is written.

    Typer would join the lines, wrap them anew, and pad each with blanks: after the backslash of an
    example that goes on in a second line, a shell would take them for the end of the command.
    """

    def __init__(self, name: str | None, *, epilog: str | None = None, **others: Any) -> None:
        super().__init__(name, **others)
        self.ending = cleandoc(epilog or "")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help as Typer does, and then the ending."""
        super().format_help(ctx, formatter)
        if self.ending:
            formatter.write(f"\n{indent(self.ending, ' ')}\n")
