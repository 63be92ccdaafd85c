"""The worker's side of `agent.batch.turns`: a sandbox whose runs wait for their turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Protocol

from sandbox.types import Command, RunResult, Sandbox
from sandbox.workspace import Workspace
from sandbox.wrapping import WrappedSandbox

_LOOK_SECONDS = 0.1  # between two looks whether the run is still wanted
_LONG_SECONDS = 1.0  # what is waited is worth a line


class Desk(Protocol):
    """Where turns are given out, from the loop's thread."""

    async def turn(self) -> None:
        """Waits until one more run may start."""
        ...

    def turn_over(self) -> None:
        """A run that might start has ended."""
        ...


class TurnTakingSandbox(WrappedSandbox):
    """Runs in `inner`, one turn a run. Called from other threads than that of `loop`.

    `waited` is told, in the loop's thread, of the seconds in which nothing ran because of others;
    `note` of each long wait.
    """

    def __init__(
        self,
        inner: Sandbox,
        desk: Desk,
        loop: asyncio.AbstractEventLoop,
        *,
        waited: Callable[[float], None] = lambda _: None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(inner)
        self._desk = desk
        self._loop = loop
        self._waited = waited
        self._note = note
        self._lock = threading.Lock()
        self._running = 0
        self._counted = 0.0  # until when waiting has been told

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """As the inner one, when it is its turn; `cancel` ends the waiting too."""
        with self._turn(cancel), self._counted_as_running():
            return self.inner.run(command, workspace, cancel=cancel)

    @contextmanager
    def _turn(self, cancel: threading.Event | None) -> Iterator[None]:
        began = time.monotonic()
        asked = asyncio.run_coroutine_threadsafe(self._desk.turn(), self._loop)
        try:
            while not asked.done() and not (cancel is not None and cancel.is_set()):
                since = time.monotonic()
                wait([asked], timeout=_LOOK_SECONDS)
                self._tell(since)
            seconds = time.monotonic() - began
            if seconds > _LONG_SECONDS:
                self._note(f"a run of tests waited {seconds:.1f} s for its turn")
            yield
        finally:  # a turn that comes too late is given back when it comes
            asked.add_done_callback(lambda _: self._desk.turn_over())

    def _tell(self, since: float) -> None:
        """Time in which several runs wait counts once, and not while another one runs."""
        with self._lock:
            now = time.monotonic()
            seconds = 0.0 if self._running else now - max(since, self._counted)
            self._counted = now
        if seconds > 0.0:
            self._loop.call_soon_threadsafe(self._waited, seconds)

    @contextmanager
    def _counted_as_running(self) -> Iterator[None]:
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
