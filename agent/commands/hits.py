"""Ranked chunks for people and for programs: the table of `agent search`, and its JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from agent.types import Reason, ScoredChunk

_SMALL = 0.02  # of a hit's greatest contribution: shown in one line with the others that small
_INDENT = " " * 5


def as_json(hit: ScoredChunk) -> dict[str, Any]:
    """One hit with all its reasons, whose values add up to the score."""
    chunk = hit.chunk
    return {
        "path": chunk.path,
        "start": chunk.start,
        "end": chunk.end,
        "symbol": chunk.symbol,
        "kind": chunk.kind.value,
        "score": round(hit.score, 6),
        "reasons": [
            {"feature": r.feature, "value": round(r.value, 6), "note": r.note} for r in hit.reasons
        ],
    }


def render(hits: Sequence[ScoredChunk], *, explain: bool, width: int | None) -> str:
    """One line a hit; with `explain` below it what its score consists of.

    `width`: columns to cut lines to, None for whole lines.
    """
    lines: list[str] = []
    for position, hit in enumerate(hits, start=1):
        chunk = hit.chunk
        place = f"{chunk.path}:{chunk.start}-{chunk.end}"
        lines.append(f"{position:3}  {hit.score:7.3f}  {place}  {chunk.symbol or chunk.kind.value}")
        if explain:
            lines.extend(_explanation(hit))
    return "".join(f"{_cut(_printable(line), width)}\n" for line in lines)


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is, None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _explanation(hit: ScoredChunk) -> Iterator[str]:
    """Each contribution in a line, the small ones together in the last."""
    least = _SMALL * max((abs(reason.value) for reason in hit.reasons), default=0.0)
    small = [reason for reason in hit.reasons if abs(reason.value) < least]
    if len(small) == 1:
        small = []
    for reason in hit.reasons:
        if reason not in small:
            yield _contribution(reason)
    if small:
        names = ", ".join(reason.feature for reason in small)
        yield f"{_INDENT}{sum(r.value for r in small):+7.3f}  {len(small)} others: {names}"


def _contribution(reason: Reason) -> str:
    note = f"  {reason.note}" if reason.note else ""
    return f"{_INDENT}{reason.value:+7.3f}  {reason.feature:<11}{note}".rstrip()


def _printable(line: str) -> str:
    """Commit subjects and paths are a repository's words: no control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"
