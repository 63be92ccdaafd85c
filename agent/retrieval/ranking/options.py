"""The options of a retriever, and the named presets for `--preset`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent.errors import ConfigurationError

_FILENAME_BONUS = 0.2


@dataclass(frozen=True, slots=True)
class RetrievalOptions:
    """Parts and sizes of ranking.

    `original`: the system before this one, for comparison. It takes the functions and whole files
    that share the most words, and ranks them by cosine and file name alone. `prefilter` is the
    number of chunks that are embedded. With the original system's 50, functions that word
    statistics rank lower are lost. A local model embeds 100 chunks in about a second, and the gain
    was measured with 100. `max_results` is the number of chunks in a ranking, far more than any
    budget holds.
    """

    original: bool = False
    static: bool = True  # the static encoder that ships with the package
    learned: bool = True  # the ranker that ships with the package; False: the plain sum
    embedding: bool = True
    prefilter: int = 100
    max_results: int = 400
    filename_bonus: float | None = None  # see `bonus`

    def __post_init__(self) -> None:
        """Raises ConfigurationError for numbers out of range."""
        if self.prefilter < 1 or self.max_results < 1:
            raise ConfigurationError("prefilter and max_results must be at least 1")
        if not 0.0 <= (self.filename_bonus or 0.0) <= 1000.0:
            raise ConfigurationError("the file name bonus must lie between 0 and 1000")

    def bonus(self, *, learned: bool, embedded: bool) -> float:
        """Return what a file name in the problem adds to a score.

        Without a value of its own: 0.2, as in the original system, beside a cosine that no ranker
        precedes; else 0, because the ranker has a feature for it.
        """
        if self.filename_bonus is not None:
            return self.filename_bonus
        return _FILENAME_BONUS if embedded and not learned else 0.0


PRESETS: Mapping[str, RetrievalOptions] = MappingProxyType(
    {
        "default": RetrievalOptions(),
        "lexical": RetrievalOptions(embedding=False),
        "original": RetrievalOptions(
            original=True,
            static=False,
            learned=False,
            prefilter=50,
            max_results=50,
            filename_bonus=_FILENAME_BONUS,
        ),
    }
)


def preset(name: str) -> RetrievalOptions:
    """Return the options of a preset. Raises ConfigurationError for an unknown name."""
    options = PRESETS.get(name)
    if options is None:
        names = ", ".join(sorted(PRESETS))
        raise ConfigurationError(f"unknown retrieval preset {name!r}; known: {names}")
    return options
