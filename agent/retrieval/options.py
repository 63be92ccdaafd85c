"""What a retriever does, each part switchable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent.errors import ConfigurationError
from agent.retrieval.features import GROUPS

RANKER = "ranker"
STATIC = "static"
_FROM_HISTORY = frozenset({"history", "churn", "cochange"})
FROM_CORPORA = ("docs", "hunks", "intents")
"""Groups of evidence from corpora beside the code: part of the plain sum where they are on."""

SWITCHES: tuple[str, ...] = tuple(sorted((*GROUPS, *FROM_CORPORA, RANKER)))
"""What `without` may name: groups of features, and the learned ranker itself."""


@dataclass(frozen=True, slots=True)
class RetrievalOptions:
    """Parts and weights of ranking. Lexical and file scores are normalised to a maximum of 1.

    `prefilter`: chunks that are embedded. The original's 50 loses functions that word statistics
    rank lower; a local model embeds 100 in about a second, and 100 is where the gain was measured.
    `max_results`: chunks in a ranking; far more than any budget holds.
    """

    first_stage: Literal["bm25", "overlap"] = "bm25"
    file_scores: bool = True
    boilerplate: bool = True  # leave out what the project's issue template wrote
    evidence: bool = True
    neighbours: bool = True  # callers, callees, relatives, imports of the best
    static: bool = True  # the static encoder that ships with the package
    learned: bool = True  # the ranker that ships with the package; else the plain sum
    without: frozenset[str] = frozenset()  # of SWITCHES: what to leave out
    embedding: bool = True
    candidates: Literal["code", "all"] = "code"  # "all": tests, vendored and generated files too
    prefilter: int = 100
    max_results: int = 400
    file_weight: float = 1.0
    prose_weight: float = 0.3  # documents and data share an issue's words, but patches are code
    lexical_weight: float = 1.0  # of the first stage, in the sum with the cosine
    cosine_weight: float = 1.0
    normalise_cosine: bool = True
    filename_bonus: float = 0.2

    def __post_init__(self) -> None:
        """Raises ConfigurationError for numbers that cannot be meant."""
        if self.prefilter < 1 or self.max_results < 1:
            raise ConfigurationError("prefilter and max_results must be at least 1")
        weights = (
            self.file_weight,
            self.prose_weight,
            self.lexical_weight,
            self.cosine_weight,
            self.filename_bonus,
        )
        unknown = sorted(self.without.difference(SWITCHES))
        if unknown:
            raise ConfigurationError(
                f"unknown group of features {unknown[0]!r} (--without, PATCHSHOT_WITHOUT); "
                f"known: {', '.join(SWITCHES)}"
            )
        if not all(0.0 <= weight <= 1000.0 for weight in weights):
            raise ConfigurationError("retrieval weights must lie between 0 and 1000")

    @property
    def uses_static(self) -> bool:
        """Whether the static encoder takes part, in indexing too."""
        return self.static and STATIC not in self.without and self.first_stage == "bm25"

    @property
    def uses_ranker(self) -> bool:
        """Whether the learned ranker orders the candidates."""
        return self.learned and RANKER not in self.without and self.first_stage == "bm25"

    @property
    def uses_history(self) -> bool:
        """Whether anything is asked of the commit history."""
        return self.evidence and not self.without >= _FROM_HISTORY and self.first_stage == "bm25"
