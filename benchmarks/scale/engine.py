"""A small simulation of discrete events: one heap, processes as generators, three resources.

A process yields what it waits for: seconds, or a `Wait` of a resource. Events at the same time come
in the order in which they were planned, so that the same seed gives the same bytes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

Wait = Callable[[Callable[[], None]], None]
"""Something to wait for: it is given what to call when the waiting is over."""

Process = Generator[float | Wait, None, None]


class Simulation:
    """The clock, in seconds from 0, and what is to come."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def start(self, process: Process) -> None:
        """Let a process run from now on."""
        self.after(0.0, lambda: self._step(process))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Plan an action."""
        self._planned += 1
        heapq.heappush(self._heap, (self.now + max(0.0, seconds), self._planned, action))

    def run(self) -> float:
        """Until nothing is to come; the time of the last event."""
        while self._heap:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        return self.now

    def _step(self, process: Process) -> None:
        try:
            wanted = next(process)
        except StopIteration:
            return
        if isinstance(wanted, float | int):
            self.after(wanted, lambda: self._step(process))
        else:
            wanted(lambda: self._step(process))


@dataclass(slots=True)
class Pool:
    """So many equal places, taken in the order of asking. `busy` is in place-seconds."""

    clock: Simulation
    places: int
    busy: float = 0.0
    waited: float = 0.0
    _taken: int = 0
    _queue: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)

    def take(self, go: Callable[[], None]) -> None:
        """A `Wait` for one place."""
        if self._taken < self.places:
            self._taken += 1
            go()
        else:
            self._queue.append((self.clock.now, go))

    def give_back(self) -> None:
        """Whoever waits longest has the place now."""
        if self._queue:
            since, go = self._queue.popleft()
            self.waited += self.clock.now - since
            self.clock.after(0.0, go)
        else:
            self._taken -= 1

    def use(self, seconds: float) -> Process:
        """Take a place for so long (`yield from`)."""
        yield self.take
        self.busy += seconds
        yield seconds
        self.give_back()

    def share_of(self, seconds: float) -> float:
        """How much of its places was in use over `seconds`."""
        return self.busy / (self.places * seconds) if seconds else 0.0


@dataclass(slots=True)
class Pacer:
    """Gives leave at even distances: `rate` units a second; 0: no limit."""

    clock: Simulation
    rate: float
    used: float = 0.0
    waited: float = 0.0
    _next: float = 0.0

    def wait(self, units: float = 1.0) -> float:
        """Seconds until these units may go out; they are then used."""
        self.used += units
        if not self.rate:
            return 0.0
        begin = max(self.clock.now, self._next)
        self._next = begin + units / self.rate
        self.waited += begin - self.clock.now
        return begin - self.clock.now

    def share_of(self, seconds: float) -> float:
        """How much of what could have gone out did, or has its turn already."""
        return min(1.0, self.used / (self.rate * seconds)) if self.rate and seconds else 0.0


@dataclass(slots=True)
class Gate:
    """Something that is made once; whoever comes meanwhile waits until it is there."""

    clock: Simulation
    made: bool = False
    _making: bool = False
    _queue: list[Callable[[], None]] = field(default_factory=list)

    def first(self) -> bool:
        """Whether the caller is the one who makes it, and then has to `open` it."""
        if self._making:
            return False
        self._making = True
        return True

    def wait(self, go: Callable[[], None]) -> None:
        """A `Wait` until it is there."""
        if self.made:
            go()
        else:
            self._queue.append(go)

    def open(self) -> None:
        """It is there now."""
        self.made = True
        for go in self._queue:
            self.clock.after(0.0, go)
        self._queue.clear()
