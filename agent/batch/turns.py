"""Who may run tests now: as many runs at once as the machine has cores, the elder job's first.

Jobs that start together come to their tests together. Were all of them run at once, all would end
late and together, and the cores would be idle while all wait for the model: with four workers and
two cores a quarter of the throughput. A test that shares its core also comes near its time limit
through no fault of its own.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Callable

Begin = Callable[[int], None]
"""Called with the number of a turn when the run it is for may start."""


class Turns:
    """Gives out `cores` turns. Jobs are told by numbers: the lower, the elder."""

    def __init__(self, cores: int) -> None:
        self._free = cores
        self._held = defaultdict[int, deque[int]](deque)
        self._waiting: list[tuple[int, int, Begin]] = []
        self._numbers = itertools.count()

    def want(self, job: int, begin: Begin) -> None:
        """`begin` is called, now or later, when a run of the job may start."""
        heapq.heappush(self._waiting, (job, next(self._numbers), begin))
        self._give()

    def stalled(self, job: int) -> bool:
        """Whether the job waits for a turn and holds none."""
        return not self._held[job] and any(waiting[0] == job for waiting in self._waiting)

    def over(self, job: int) -> None:
        """A run of the job has ended, or will not be started although it might."""
        if self._held[job]:
            self._held[job].popleft()
            self._free += 1
        self._give()

    def expire(self, job: int, turn: int) -> None:
        """Take a turn back, if the job has given back fewer than it has had since."""
        if turn in self._held[job]:
            self._held[job].remove(turn)
            self._free += 1
        self._give()

    def gone(self, job: int) -> None:
        """The job has ended: it holds no turn any more, and wants none."""
        self._free += len(self._held.pop(job, ()))
        self._waiting = [waiting for waiting in self._waiting if waiting[0] != job]
        heapq.heapify(self._waiting)
        self._give()

    def _give(self) -> None:
        while self._free and self._waiting:
            job, turn, begin = heapq.heappop(self._waiting)
            self._free -= 1
            self._held[job].append(turn)
            begin(turn)
