"""Who may run tests now: as many runs at once as the machine has cores, the elder job's first.

Jobs that start together come to their tests together. Were all of them run at once, all would end
late and together, and the cores would be idle while all wait for the model: with four workers and
two cores a quarter of the throughput. A test that shares its core also comes near its time limit
through no fault of its own.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable


class Turns:
    """Gives out `cores` turns. Jobs are told by numbers: the lower, the elder."""

    def __init__(self, cores: int) -> None:
        self._free = cores
        self._taken = Counter[int]()
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def want(self, job: int, begin: Callable[[], None]) -> None:
        """`begin` is called, now or later, when a run of the job may start."""
        heapq.heappush(self._waiting, (job, next(self._count), begin))
        self._give()

    def over(self, job: int) -> None:
        """A run of the job has ended, or will not be started although it might."""
        if self._taken[job]:
            self._taken[job] -= 1
            self._free += 1
        self._give()

    def gone(self, job: int) -> None:
        """The job has ended: it holds no turn any more, and wants none."""
        self._free += self._taken.pop(job, 0)
        self._waiting = [waiting for waiting in self._waiting if waiting[0] != job]
        heapq.heapify(self._waiting)
        self._give()

    def _give(self) -> None:
        while self._free and self._waiting:
            job, _, begin = heapq.heappop(self._waiting)
            self._free -= 1
            self._taken[job] += 1
            begin()
