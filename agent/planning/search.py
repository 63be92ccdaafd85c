"""Best-first search over plans: the most valuable plan is changed next, until the budget is spent.

Deterministic: the frontier is ordered by falling value, then by the plans themselves.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.planning.grounding import Grounded, Grounder
from agent.planning.intents import Intent, Plan, plan_of
from agent.planning.mutations import Mutator
from agent.planning.scoring import NOTHING, PlanValue, Scene

FIRST_INTENTS = 4
"""Of the first plan: title, errors and frames come before sentences in an issue's intents."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A plan, what its intents found, and what it is worth."""

    plan: Plan
    grounded: tuple[Grounded, ...] = ()
    value: PlanValue = NOTHING

    @property
    def order(self) -> tuple[float, tuple[str, ...]]:
        """The most valuable first, then by the queries: a total order."""
        return (-self.value.total, self.plan.key)


@dataclass(slots=True)
class PlanSearch:
    """One search. `expansions`: plans whose neighbours are looked at."""

    scene: Scene
    grounder: Grounder
    mutator: Mutator
    expansions: int = 6
    _seen: set[tuple[str, ...]] = field(default_factory=set)
    _frontier: list[tuple[tuple[float, tuple[str, ...]], Judged]] = field(default_factory=list)

    def best(self, *starts: Plan) -> Judged:
        """The most valuable plan that was found from these."""
        self.offer(starts)
        found: list[Judged] = [judged for _, judged in self._frontier]
        for _ in range(self.expansions):
            if not self._frontier:
                break
            _, judged = heapq.heappop(self._frontier)
            found += self.offer(self.mutator.mutated(judged.grounded))
        return min(found, key=lambda judged: judged.order, default=Judged(Plan(())))

    def offer(self, plans: Iterable[Plan]) -> list[Judged]:
        """Judge plans that are new and that the budget allows for."""
        judged = []
        for plan in plans:
            if plan.key in self._seen or not plan.intents:
                continue
            self._seen.add(plan.key)
            found = self.grounder.ground(plan.intents)
            if found is not None:
                judged.append(Judged(plan, found, self.scene.value(found)))
        for one in judged:
            heapq.heappush(self._frontier, (one.order, one))
        return judged


def first_plan(intents: tuple[Intent, ...]) -> Plan:
    """The plan that the search starts from: what an issue says first."""
    return plan_of(intents[:FIRST_INTENTS])
