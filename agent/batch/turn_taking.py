"""The worker's side of `agent.batch.turns`: a sandbox whose runs wait for their turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Protocol

from sandbox.types import Command, RunResult, Sandbox
from sandbox.workspace import Workspace
from sandbox.wrapping import WrappedSandbox

_LOOK_SECONDS = 0.1  # between two looks whether the run is still wanted


class Desk(Protocol):
    """Where turns are given out, from the loop's thread."""

    async def turn(self) -> None:
        """Waits until one more run may start."""
        ...

    def turn_over(self) -> None:
        """A run that might start has ended."""
        ...


class TurnTakingSandbox(WrappedSandbox):
    """Runs in `inner`, one turn a run. Called from other threads than that of `loop`."""

    def __init__(self, inner: Sandbox, desk: Desk, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(inner)
        self._desk = desk
        self._loop = loop

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """As the inner one, when it is its turn; `cancel` ends the waiting too."""
        with self._turn(cancel):
            return self.inner.run(command, workspace, cancel=cancel)

    @contextmanager
    def _turn(self, cancel: threading.Event | None) -> Iterator[None]:
        asked = asyncio.run_coroutine_threadsafe(self._desk.turn(), self._loop)
        try:
            while not asked.done() and not (cancel is not None and cancel.is_set()):
                wait([asked], timeout=_LOOK_SECONDS)
            yield
        finally:  # a turn that comes too late is given back when it comes
            asked.add_done_callback(lambda _: self._desk.turn_over())
