"""CPU slots: at most as many runs of tests at once as the machine has cores, the oldest job first.

Jobs that start together come to their tests together. If all tests ran at once, they would all end
late, and the cores would then be idle while every job waits for the model: with four workers and
two cores that costs a quarter of the throughput. A test that shares its core may also exceed its
time limit through no fault of its own.

The engine gives out `CpuSlots`; a worker runs its tests in a `SlotSandbox`, which asks for them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Protocol

from sandbox import Command, RunResult, Sandbox, Workspace, WrappedSandbox

OnSlot = Callable[[int], None]
"""Called with the number of a slot when the run may start."""


class CpuSlots:
    """Gives out `cores` slots. Jobs are known by numbers, the lower the older."""

    def __init__(self, cores: int) -> None:
        self._free = cores
        self._held = defaultdict[int, deque[int]](deque)
        self._waiting: list[tuple[int, int, OnSlot]] = []
        self._numbers = itertools.count()

    def request(self, job: int, on_slot: OnSlot) -> None:
        """Call `on_slot`, now or later, when a run of the job may start."""
        heapq.heappush(self._waiting, (job, next(self._numbers), on_slot))
        self._give()

    def stalled(self, job: int) -> bool:
        """Return whether the job waits for a slot and holds none."""
        return not self._held[job] and any(waiting[0] == job for waiting in self._waiting)

    def release(self, job: int) -> None:
        """Take back a slot of the job: its run has ended, or will not start."""
        if self._held[job]:
            self._held[job].popleft()
            self._free += 1
        self._give()

    def expire(self, job: int, slot: int) -> None:
        """Take back this slot, unless the job has released it."""
        if slot in self._held[job]:
            self._held[job].remove(slot)
            self._free += 1
        self._give()

    def job_ended(self, job: int) -> None:
        """Take back all slots of a job that has ended, and drop its requests."""
        self._free += len(self._held.pop(job, ()))
        self._waiting = [waiting for waiting in self._waiting if waiting[0] != job]
        heapq.heapify(self._waiting)
        self._give()

    def _give(self) -> None:
        while self._free and self._waiting:
            job, slot, on_slot = heapq.heappop(self._waiting)
            self._free -= 1
            self._held[job].append(slot)
            on_slot(slot)


_LOOK_SECONDS = 0.1  # between two checks whether the run was cancelled
_LONG_SECONDS = 1.0  # a longer wait is worth a message


class SlotClient(Protocol):
    """Asks the engine for slots, from the thread of the event loop."""

    async def take_slot(self) -> None:
        """Wait until a run of tests may start."""
        ...

    def release_slot(self) -> None:
        """Give the slot back."""
        ...


class SlotSandbox(WrappedSandbox):
    """Runs commands in `inner`, each in a CPU slot. Called from other threads than that of `loop`.

    `waited` is called, in the loop's thread, with the seconds in which this job only waited for
    others, and `note` with a message about each long wait.
    """

    def __init__(
        self,
        inner: Sandbox,
        driver: SlotClient,
        loop: asyncio.AbstractEventLoop,
        *,
        waited: Callable[[float], None] = lambda _: None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(inner)
        self._driver = driver
        self._loop = loop
        self._waited = waited
        self._note = note
        self._lock = threading.Lock()
        self._running = 0
        self._counted = 0.0  # monotonic time up to which `waited` was called

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run the command once a slot is free; `cancel` ends the waiting too."""
        with self._slot(cancel), self._counted_as_running():
            return self.inner.run(command, workspace, cancel=cancel)

    @contextmanager
    def _slot(self, cancel: threading.Event | None) -> Iterator[None]:
        began = time.monotonic()
        asked = asyncio.run_coroutine_threadsafe(self._driver.take_slot(), self._loop)
        try:
            while not asked.done() and not (cancel is not None and cancel.is_set()):
                since = time.monotonic()
                wait([asked], timeout=_LOOK_SECONDS)
                self._report_waiting(since)
            seconds = time.monotonic() - began
            if seconds > _LONG_SECONDS:
                self._note(f"a run of tests waited {seconds:.1f} s for a free core")
            yield
        finally:  # a slot that comes too late is given back when it comes
            asked.add_done_callback(lambda _: self._driver.release_slot())

    def _report_waiting(self, since: float) -> None:
        """Count time in which several runs wait once, and not at all while another run goes on."""
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
