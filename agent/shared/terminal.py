"""Text for the user's terminal, which text of a repository or a model must not steer.

`protect_streams` puts a filter before stdout and stderr of the process. What passes by it is the
animation of progress (`unfiltered`) and the diff (`agent.cli.commands.common.write_diff`).
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TextIO

_SIGN = "\N{REPLACEMENT CHARACTER}"


def inert(text: str, sign: str = _SIGN, *, kept: str = "\n\t") -> str:
    """Return the text with `sign` for every character that is not printable, except for `kept`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else sign for c in text)


def inert_json(text: str) -> str:
    """Return JSON with escapes for the characters that are not printable; its value stays."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = (units[i : i + 2] for i in range(0, len(units), 2))
    return "".join(f"\\u{int.from_bytes(pair, 'big'):04x}" for pair in pairs)


def counted(number: int, one: str, many: str = "") -> str:
    """Return the number with its noun, such as `1 passage` or `2 passages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return `a, b and 3 more`."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[str]
) -> list[str]:
    """Return a Markdown table with padded columns; those named in `numbers` end at the right."""
    cells = [header, *([inert(v, " ", kept="").replace("|", "\\|") for v in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    signs = [">" if name in numbers else "<" for name in header]
    columns = list(zip(signs, widths, strict=True))
    lines = [
        f"| {' | '.join(f'{v:{s}{w}}' for v, (s, w) in zip(row, columns, strict=True))} |"
        for row in cells
    ]
    rule = ("-" * (width + 1) + (":" if sign == ">" else "-") for sign, width in columns)
    return [lines[0], f"|{'|'.join(rule)}|", *lines[1:]]


def fence_around(text: str) -> str:
    """Return a fence of Markdown that no run of backticks in the text closes."""
    return "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))


def say(text: str) -> None:
    """Print text to stderr without control characters."""
    print(inert(text), file=sys.stderr, flush=True)  # noqa: T201


class InertStream(io.TextIOWrapper):
    """A text stream over the same bytes as `plain` that writes printable characters only."""

    def __init__(self, plain: io.TextIOWrapper) -> None:
        super().__init__(
            plain.buffer,
            encoding=plain.encoding,
            errors="replace",
            line_buffering=plain.line_buffering,
        )
        self.plain = plain

    def write(self, text: str, /) -> int:
        """Write the text without control characters."""
        return super().write(inert(text))


def protect_streams() -> None:
    """Put an `InertStream` in the place of stdout and of stderr."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:
            setattr(sys, name, InertStream(stream))


def unfiltered(stream: TextIO) -> TextIO:
    """Return what an `InertStream` writes to, for output that steers the terminal by intention."""
    return stream.plain if isinstance(stream, InertStream) else stream


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra for this interpreter."""
    from importlib import metadata

    lines = [line.partition(";") for line in metadata.requires("patchshot") or ()]
    needed = [name.strip() for name, _, marker in lines if f'"{extra}"' in marker.replace("'", '"')]
    return shlex.join([sys.executable, "-m", "pip", "install", *needed])
