"""The options of a retriever, and the named presets for `--preset`.

Every preset has variants that leave a part out: `lexical-history` is `lexical` without the group
`history`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from agent.errors import ConfigurationError
from agent.retrieval.ranking.features import GROUPS

RANKER = "ranker"
STATIC = "static"
_FROM_HISTORY = frozenset({"history", "churn", "cochange"})
FROM_CORPORA = ("docs", "hunks", "intents", "memory")
"""Groups of evidence from sources other than the code: part of the plain sum where they are on."""

FILENAME_BONUS = 0.2

SWITCHES: tuple[str, ...] = tuple(sorted((*GROUPS, *FROM_CORPORA, RANKER)))
"""Values that `without` accepts: groups of features, and the learned ranker itself."""


@dataclass(frozen=True, slots=True)
class RetrievalOptions:
    """Parts and weights of ranking. Lexical and file scores are normalised to a maximum of 1.

    `prefilter` is the number of chunks that are embedded. With the original system's 50, functions
    that word statistics rank lower are lost. A local model embeds 100 chunks in about a second, and
    the gain was measured with 100. `max_results` is the number of chunks in a ranking, far more
    than any budget holds.
    """

    first_stage: Literal["bm25", "overlap"] = "bm25"
    file_scores: bool = True
    boilerplate: bool = True  # leave out the text of the project's issue template
    evidence: bool = True
    neighbours: bool = True  # callers, callees, base and derived classes, imports of the best
    static: bool = True  # the static encoder that ships with the package
    learned: bool = True  # the ranker that ships with the package; False: the plain sum
    without: frozenset[str] = frozenset()  # the SWITCHES to leave out
    embedding: bool = True
    candidates: Literal["code", "all"] = "code"  # "all": tests, vendored and generated files too
    prefilter: int = 100
    max_results: int = 400
    file_weight: float = 1.0
    prose_weight: float = 0.3  # documents and data share an issue's words, but patches change code
    lexical_weight: float = 1.0  # weight of the first stage in the sum with the cosine
    cosine_weight: float = 1.0
    normalise_cosine: bool = True
    filename_bonus: float | None = None  # see `bonus`

    def __post_init__(self) -> None:
        """Raises ConfigurationError for numbers out of range."""
        if self.prefilter < 1 or self.max_results < 1:
            raise ConfigurationError("prefilter and max_results must be at least 1")
        weights = (
            self.file_weight,
            self.prose_weight,
            self.lexical_weight,
            self.cosine_weight,
            self.filename_bonus or 0.0,
        )
        unknown = sorted(self.without.difference(SWITCHES))
        if unknown:
            raise ConfigurationError(
                f"unknown group of features {unknown[0]!r} (--without, PATCHSHOT_WITHOUT); "
                f"known: {', '.join(SWITCHES)}"
            )
        if not all(0.0 <= weight <= 1000.0 for weight in weights):
            raise ConfigurationError("retrieval weights must lie between 0 and 1000")

    def bonus(self, *, learned: bool, embedded: bool) -> float:
        """Return what a file name in the problem adds to a score.

        Without a value of its own: 0.2, as in the original system, beside a cosine that no ranker
        precedes; else 0, because the ranker has a feature for it.
        """
        if self.filename_bonus is not None:
            return self.filename_bonus
        return FILENAME_BONUS if embedded and not learned else 0.0

    @property
    def uses_static(self) -> bool:
        """Whether the static encoder is used, in ranking and in indexing."""
        return self.static and STATIC not in self.without and self.first_stage == "bm25"

    @property
    def uses_ranker(self) -> bool:
        """Whether the learned ranker orders the candidates."""
        return self.learned and RANKER not in self.without and self.first_stage == "bm25"

    @property
    def uses_history(self) -> bool:
        """Whether any part reads the commit history."""
        return self.evidence and not self.without >= _FROM_HISTORY and self.first_stage == "bm25"


# ------------------------------------------------------------------------------------------ presets

DEFAULT_PRESET = "default"

PRESETS: Mapping[str, RetrievalOptions] = MappingProxyType(
    {
        DEFAULT_PRESET: RetrievalOptions(),
        "lexical": RetrievalOptions(embedding=False),
        # The original system, for comparison: the 50 functions and whole files that share the most
        # words, ranked by cosine and file name alone.
        "original": RetrievalOptions(
            first_stage="overlap",
            file_scores=False,
            boilerplate=False,
            evidence=False,
            neighbours=False,
            learned=False,
            candidates="all",
            prefilter=50,
            max_results=50,
            lexical_weight=0.0,
            normalise_cosine=False,
            filename_bonus=FILENAME_BONUS,
        ),
    }
)


def preset(name: str) -> RetrievalOptions:
    """Return the options of a preset. Raises ConfigurationError for an unknown name."""
    base, switch = split_name(name)
    options = PRESETS[base]
    return replace(options, without=options.without | {switch}) if switch else options


def split_name(name: str) -> tuple[str, str]:
    """Split a name into the preset and the switch after it ("" for none).

    Raises ConfigurationError if either is unknown.
    """
    base, _, switch = name.partition("-")
    if base not in PRESETS or (switch not in SWITCHES and name != base):
        raise ConfigurationError(
            f"unknown retrieval preset {name!r}; known: {', '.join(sorted(PRESETS))}, and each "
            f"with -X behind it, which leaves X out: {', '.join(SWITCHES)}"
        )
    return base, switch
