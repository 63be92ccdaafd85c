"""A table in Markdown that is aligned in a terminal too."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the lines of a table whose first column is text and whose others are numbers."""
    widths = [max(3, *map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for first, *others in (head, rule, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append(f"| {' | '.join((first.ljust(widths[0]), *cells))} |\n")
    return "".join(lines)
