"""The instances that wait, and which of them a node is given next."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable


class Waiting:
    """Projects of the waiting instances. `affinity`: a node goes on with what it has.

    Without it instances go in their order. With it a node takes the project with the most waiting
    of those that it has, else the one with the most waiting for each node that has it.
    """

    def __init__(self, projects: Iterable[int], *, affinity: bool) -> None:
        self._order = deque(projects)
        self._affinity = affinity
        self._left = Counter(self._order)
        self._had: dict[int, set[int]] = defaultdict(set)
        self._holders: Counter[int] = Counter()

    def take(self, node: int) -> int | None:
        """The project of the next instance for a node; None where none waits."""
        if not self._affinity:
            return self._order.popleft() if self._order else None
        had = self._had[node]
        own = [project for project in had if self._left[project]]
        rest = own or [project for project, left in self._left.items() if left]
        if not rest:
            return None
        chosen = min(rest, key=lambda p: (-self._left[p] / (1 + self._holders[p]), p))
        self._left[chosen] -= 1
        if chosen not in had:
            had.add(chosen)
            self._holders[chosen] += 1
        return chosen
