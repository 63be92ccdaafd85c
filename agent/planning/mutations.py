"""Mutations of a plan, without a model: drop, merge, split, rephrase by what was found, add.

Each gives whole plans, in a fixed order; the search decides which are worth their rankings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.planning.grounding import Grounded
from agent.planning.intents import Intent, Plan, intent_of, plan_of
from agent.retrieval.graph import neighbours

if TYPE_CHECKING:
    from agent.retrieval.corpus import Corpus

MAX_INTENTS = 8
"""Of a plan: a fix seldom needs more than a few places, and each intent dilutes the others."""

_NAMES = 2  # symbols that a rephrased intent takes in
_ADDED = 2  # further intents, of each source, that one expansion tries
_SAME_CODE = 1 / 3  # of the smaller one's hits: from here on two intents look for the same thing
_LEAST_WORDS = 2  # of each half of a split
_CLAUSE = re.compile(
    r"\s*[;:,]\s+|\s+(?:and|but|when|while|because|since|if|so that|instead of|after|before)\s+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Mutator:
    """Changes plans over one corpus. `pool`: intents of the issue that a plan may take in."""

    corpus: Corpus
    pool: tuple[Intent, ...]

    def mutated(self, plan: Sequence[Grounded]) -> Iterator[Plan]:
        """Neighbours of a plan; some may be the same as each other, none is the plan itself."""
        yield from _dropped(plan)
        yield from _merged(plan)
        if len(plan) < MAX_INTENTS:
            yield from self._added(plan)
            yield from _split(plan)
        yield from self._rephrased(plan)

    def _added(self, plan: Sequence[Grounded]) -> Iterator[Plan]:
        """With one more of the issue's intents, or with what stands around the hits."""
        mine = _intents(plan)
        there = {intent.query for intent in mine}
        unused = [intent for intent in self.pool if intent.query not in there]
        around = [intent for intent in self._around(plan) if intent.query not in there]
        for intent in (*unused[:_ADDED], *around[:_ADDED]):
            yield plan_of((*mine, intent))

    def _around(self, plan: Sequence[Grounded]) -> list[Intent]:
        """Callers, callees and relatives of the best hits, what several of them have first."""
        hits = {grounded.hits[0]: 1.0 for grounded in plan if grounded.hits}
        if not hits:
            return []
        found = neighbours(self.corpus, hits, {}).pieces
        worth = {n: sum(sorted(r.value for r in found[n].values())) for n in found}
        shown = {piece for grounded in plan for piece in grounded.hits}
        best = sorted((n for n in worth if n not in shown), key=lambda n: (-worth[n], n))
        return [intent_of(self._name(n), "neighbour") for n in best if self.corpus.symbols[n]]

    def _rephrased(self, plan: Sequence[Grounded]) -> Iterator[Plan]:
        """One intent in the project's own words: with the names of what it found first."""
        intents = _intents(plan)
        for at, grounded in enumerate(plan):
            names = [self._name(n) for n in grounded.hits if self.corpus.symbols[n]][:_NAMES]
            query = " ".join((grounded.intent.query, *names))
            if names and grounded.intent.origin != "mutation":
                yield _with(intents, at, intent_of(query, "mutation"))

    def _name(self, piece: int) -> str:
        return f"{self.corpus.symbols[piece]} in {self.corpus.path_of(piece).rpartition('/')[2]}"


def _intents(plan: Sequence[Grounded]) -> tuple[Intent, ...]:
    return tuple(grounded.intent for grounded in plan)


def _with(intents: Sequence[Intent], at: int, *others: Intent) -> Plan:
    """The plan with others in the place of one."""
    return plan_of((*intents[:at], *others, *intents[at + 1 :]))


def _dropped(plan: Sequence[Grounded]) -> Iterator[Plan]:
    intents = _intents(plan)
    if len(intents) > 1:
        yield from (_with(intents, at) for at in range(len(intents)))


def _merged(plan: Sequence[Grounded]) -> Iterator[Plan]:
    """Two intents that look for the same code as one, in the place of the first."""
    intents = _intents(plan)
    for i, one in enumerate(plan):
        for j in range(i + 1, len(plan)):
            other = plan[j]
            least = min(len(one.hits), len(other.hits))
            if least and len(set(one.hits) & set(other.hits)) >= _SAME_CODE * least:
                both = intent_of(f"{one.intent.query} {other.intent.query}", "mutation")
                yield plan_of((*intents[:i], both, *intents[i + 1 : j], *intents[j + 1 :]))


def _split(plan: Sequence[Grounded]) -> Iterator[Plan]:
    """An intent of two clauses as two."""
    intents = _intents(plan)
    for at, intent in enumerate(intents):
        clauses = [
            part for part in _CLAUSE.split(intent.query) if len(part.split()) >= _LEAST_WORDS
        ]
        if len(clauses) > 1:
            first, rest = clauses[0], " ".join(clauses[1:])
            yield _with(intents, at, intent_of(first, "mutation"), intent_of(rest, "mutation"))
