"""Evidence for files from patches that the user accepted: issues that share words change one file.

The feature `memory` is a group for `--without`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from agent.retrieval.index import Terms, term_hash
from agent.retrieval.ranking import Evidence, make_query
from agent.search.corpora.memory import Memory
from agent.search.opening import SearchPaths
from agent.search.project import project_name
from agent.types import Reason

if TYPE_CHECKING:
    from agent.retrieval.index import Corpus
    from agent.retrieval.ranking import Mentions
    from agent.types import Problem
    from agent.types.protocols import Snapshot

MEMORY_FEATURE = "memory"

MEMORY_WEIGHT = 0.4
"""Weight in the plain sum of a patch whose issue has all words of this one. As for commits."""

LEAST_SHARE = 0.25
"""Issues that share less of their words are about something else."""


@dataclass(frozen=True, slots=True)
class MemoryEvidence:
    """An `EvidenceSource` over the accepted patches of the snapshot's project."""

    places: SearchPaths

    def __call__(
        self, problem: Problem, mentions: Mentions, snapshot: Snapshot, corpus: Corpus, /
    ) -> Evidence:
        """Return evidence for the files that patches of similar issues changed."""
        del mentions
        evidence = Evidence()
        entries = Memory(self.places.memory(project_name(snapshot))).entries()
        if not entries:
            return evidence
        numbers = {file.path: number for number, file in enumerate(corpus.files)}
        for entry, share in zip(
            entries, shared_words(problem, [entry.issue for entry in entries]), strict=True
        ):
            if share < LEAST_SHARE:
                continue
            reason = Reason(MEMORY_FEATURE, MEMORY_WEIGHT * share, f"accepted: {entry.title[:80]}")
            for path in entry.paths:
                if path in numbers:
                    evidence.add_file(numbers[path], reason)
        return evidence


def shared_words(problem: Problem, texts: list[str]) -> list[float]:
    """Return the share in [0, 1] of the problem's words, by weight, that each text has.

    A word weighs less the more of the texts have it.
    """
    terms = Terms()
    query = make_query(problem, terms)
    weights = dict(zip(query.hashes.tolist(), query.weights.tolist(), strict=True))
    having = [{term_hash(term) for term in terms.count(text)} for text in texts]
    for key in weights:
        found = sum(key in one for one in having)
        weights[key] *= log(1.0 + (len(texts) + 0.5) / (found + 0.5))
    total = sum(weights.values()) or 1.0
    return [sum(weights[key] for key in sorted(one & weights.keys())) / total for one in having]
