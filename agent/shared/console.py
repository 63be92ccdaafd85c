"""Renders progress events to stderr: as one live line on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from agent.shared.terminal import counted, inert, say, unfiltered
from agent.types.events import Event, ModelCall, Notice, StageFinished, StageProgress, StageStarted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from agent.types.protocols import Reporter

# A phrase for each running stage.
_DOING = {
    "snapshot": "reading the repository",
    "index": "cutting files into chunks",
    "embed": "embedding chunks",
    "retrieve": "ranking code",
    "locate": "asking which code to show",
    "pack": "packing the context",
    "call": "waiting for the model",
    "apply": "reading and applying the reply",
    "validate": "testing before and after",
    "evaluate": "measuring retrieval",
    "score": "judging predictions",
    "background": "searching past changes and documents",
    "test": "running",
    "iterate": "working step by step",
    "vectors": "reading vectors",
    "import": "writing vectors",
}


_SECONDS_A_LINE = 1.0
"""Least time between lines of progress where stderr is no terminal."""

Redact = Callable[[str], str]


class PlainReporter:
    """Prints a line for each finished step and each notice, and of progress one line a second.

    A step that still runs after a second is named. With `verbose`, each model call gets a line.
    """

    def __init__(self, *, verbose: bool = False, redact: Redact = str) -> None:
        self._verbose = verbose
        self._redact = redact
        self._lock = threading.RLock()
        self._last = float("-inf")
        self._pending = threading.Timer(_SECONDS_A_LINE, self._say)

    def __call__(self, event: Event, /) -> None:
        """Print the event's line, of progress only if nothing was printed within a second."""
        with self._lock:
            line = self._line(event)
            is_early = time.monotonic() - self._last < _SECONDS_A_LINE
            if line is None or (is_early and isinstance(event, StageProgress)):
                return
            self._pending.cancel()
            if is_early and isinstance(event, StageStarted):
                self._pending = threading.Timer(_SECONDS_A_LINE, self._say, [line])
                self._pending.daemon = True
                self._pending.start()
            else:
                self._say(line)

    def _say(self, line: str) -> None:
        with self._lock:
            self._last = time.monotonic()
            say(self._redact(line))

    def _line(self, event: Event) -> str | None:
        match event:
            case StageStarted(stage, detail):
                return f"{stage}: {_doing(stage, detail)} ..."
            case StageFinished(stage, seconds, summary, ok):
                return f"{stage}: {summary or ('done' if ok else 'stopped')} [{seconds:.2f} s]"
            case StageProgress(stage, done, total):
                return f"{stage}: {done:,} of {total:,}"
            case Notice(message, level):
                return f"{'warning: ' if level == 'warning' else ''}{message}"
            case ModelCall():
                return call_in_words(event) if self._verbose else None


class TerminalReporter:
    """Shows one live line: the step that runs, its time, the time and the tokens of the run.

    Notices and steps that fail get lines above it; with `verbose`, all steps and model calls.
    """

    def __init__(self, console: Console, *, verbose: bool = False, redact: Redact = str) -> None:
        self._verbose = verbose
        self._redact = redact
        self._console = console
        self._status: Status | None = None
        self._running: list[tuple[str, float]] = []
        self._doing = ""
        self._tokens = 0
        self._begun = time.monotonic()
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __rich__(self) -> str:
        """Return the live line as it is now."""
        now, running = time.monotonic(), self._running
        step = f", {now - running[-1][1]:.0f} s" if running else ""
        tokens = f", {self._tokens:,} tokens" if self._tokens else ""
        return f"{self._doing}{step} [dim](in all {now - self._begun:.0f} s{tokens})[/dim]"

    def __call__(self, event: Event, /) -> None:
        """Show the event."""
        with self._lock:
            self._show(event)

    def _show(self, event: Event) -> None:
        match event:
            case StageStarted(stage, detail):
                self._running.append((stage, time.monotonic()))
                self._spin(_doing(stage, detail))
            case StageProgress(stage, done, total):
                self._spin(f"{_doing(stage)} {done:,} of {total:,}")
            case StageFinished(stage, seconds, summary, ok):
                self._running = [one for one in self._running if one[0] != stage]
                if self._verbose or not ok:
                    mark = "[green]✓[/green]" if ok else "[yellow]·[/yellow]"
                    text = self._plain(summary)
                    self._print(f"{mark} {stage:<9} [dim]{seconds:7.2f} s[/dim]  {text}")
                if self._running:
                    self._spin(_doing(self._running[-1][0]))
                else:
                    self.__exit__()
            case Notice(message, level):
                style = "yellow" if level == "warning" else "dim"
                self._print(f"  [{style}]{self._plain(message)}[/{style}]")
            case ModelCall():
                self._tokens += (event.input_tokens or 0) + (event.output_tokens or 0)
                if self._verbose:
                    self._print(f"  [dim]{self._plain(call_in_words(event))}[/dim]")

    def _spin(self, text: str) -> None:
        self._doing = self._plain(text)
        if self._status is None:
            self._status = self._console.status(self)
            self._status.start()

    def _print(self, markup: str) -> None:
        self._console.print(markup, highlight=False, soft_wrap=True)

    def _plain(self, text: str) -> str:
        """Return untrusted text for rich, with markup escaped and control characters removed."""
        from rich.markup import escape

        return escape(inert(self._redact(text), " ", kept=""))


def _doing(stage: str, detail: str = "") -> str:
    return f"{_DOING.get(stage, stage)}{f' ({detail})' if detail else ''}"


def call_in_words(call: ModelCall) -> str:
    """Describe one model call in one line: the model, how it ended, tokens, cost and time."""
    what = f"{counted(call.texts, 'text')} to" if call.texts is not None else "to"
    facts = [call.status]
    if call.attempt > 1:
        facts.append(f"try {call.attempt}")
    if call.input_tokens is not None:
        facts.append(f"{call.input_tokens:,} tokens in")
    if call.output_tokens is not None:
        facts.append(f"{call.output_tokens:,} out")
    if call.cost_usd is not None:
        facts.append(f"${call.cost_usd:.4f}")
    facts.append(f"{call.seconds:.2f} s")
    error = f": {call.error}" if call.error else ""
    return f"{call.kind} {what} {call.model}: {', '.join(facts)}{error}"


@contextmanager
def open_reporter(*, verbose: bool, redact: Redact) -> Iterator[Reporter]:
    """Yield the reporter for this stderr. All texts pass through `redact`."""
    if not sys.stderr.isatty():
        yield PlainReporter(verbose=verbose, redact=redact)
        return
    from rich.console import Console

    console = Console(file=unfiltered(sys.stderr))
    with TerminalReporter(console, verbose=verbose, redact=redact) as reporter:
        yield reporter
