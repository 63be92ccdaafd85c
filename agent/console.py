"""Renders progress events to stderr: rich on a terminal, plain lines elsewhere, nothing if quiet.

stdout is never touched here: it carries results only.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from agent.events import Event, Notice, StageFinished, StageProgress, StageStarted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

# What a running stage is doing, in words.
_DOING = {
    "snapshot": "reading the repository",
    "index": "cutting files into chunks",
    "embed": "embedding chunks",
    "retrieve": "ranking code",
    "pack": "packing the context",
    "call": "waiting for the model",
    "apply": "reading and applying the reply",
    "validate": "testing before and after",
    "evaluate": "measuring retrieval",
    "test": "running",
    "iterate": "working step by step",
}


# Stages that run several times: their line says which one it was.
_DETAILED = frozenset({"test"})


class QuietReporter:
    """Says nothing."""

    def __call__(self, event: Event, /) -> None:
        """Drop the event."""


class PlainReporter:
    """One line an event, for logs and pipes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tenths: dict[str, int] = {}

    def __call__(self, event: Event, /) -> None:
        """Print the event's line; progress only at each tenth of the whole."""
        line = self._line(event)
        if line is None:
            return
        with self._lock:
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    def _line(self, event: Event) -> str | None:
        match event:
            case StageStarted(stage, detail):
                doing = _DOING.get(stage, stage)
                return f"{stage}: {doing}{f' ({detail})' if detail else ''} ..."
            case StageFinished(stage, seconds, summary, ok):
                return f"{stage}: {summary or ('done' if ok else 'stopped')} [{seconds:.2f} s]"
            case StageProgress(stage, done, total):
                tenth = done * 10 // total if total else 10
                if self._tenths.get(stage) == tenth or done == total:
                    return None
                self._tenths[stage] = tenth
                return f"{stage}: {done:,} of {total:,}"
            case Notice(message, level):
                return f"{'warning: ' if level == 'warning' else ''}{message}"


class TerminalReporter:
    """A spinner for the running stage, a line for each finished one. A context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._running: list[str] = []
        self._details: dict[str, str] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def __call__(self, event: Event, /) -> None:
        """Show the event."""
        with self._lock:
            self._show(event)

    def _show(self, event: Event) -> None:
        match event:
            case StageStarted(stage, detail):
                self._running.append(stage)
                self._details[stage] = detail
                doing = _DOING.get(stage, stage)
                self._spin(f"{doing}{f' ({detail})' if detail else ''}")
            case StageProgress(stage, done, total):
                self._spin(f"{_DOING.get(stage, stage)} {done:,} of {total:,}")
            case StageFinished(stage, seconds, summary, ok):
                if stage in self._running:
                    self._running.remove(stage)
                mark = "[green]✓[/green]" if ok else "[yellow]·[/yellow]"
                what = f"{self._details.get(stage, '')}: " if stage in _DETAILED else ""
                line = f"{mark} {stage:<9} [dim]{seconds:7.2f} s[/dim]  {_plain(what + summary)}"
                self._print(line)
                if not self._running:
                    self._stop()
            case Notice(message, level):
                style = "yellow" if level == "warning" else "dim"
                self._print(f"  [{style}]{_plain(message)}[/{style}]")

    def _spin(self, text: str) -> None:
        if self._status is None:
            self._status = self._console.status(_plain(text))
            self._status.start()
        else:
            self._status.update(_plain(text))

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _print(self, markup: str) -> None:
        self._console.print(markup, highlight=False, soft_wrap=True)


def _plain(text: str) -> str:
    """Text that may hold anything, for rich: markup and control characters are inert."""
    from rich.markup import escape

    return escape("".join(c if c.isprintable() else " " for c in text))


def reporter_for(*, quiet: bool) -> QuietReporter | PlainReporter | TerminalReporter:
    """The reporter that fits where stderr goes."""
    if quiet:
        return QuietReporter()
    if not sys.stderr.isatty():
        return PlainReporter()
    from rich.console import Console

    return TerminalReporter(Console(stderr=True))
