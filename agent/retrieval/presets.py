"""Named sets of retrieval options: what `--preset` chooses from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agent.errors import ConfigurationError
from agent.retrieval.options import RetrievalOptions

DEFAULT_PRESET = "default"

PRESETS: Mapping[str, RetrievalOptions] = MappingProxyType(
    {
        DEFAULT_PRESET: RetrievalOptions(),
        "lexical": RetrievalOptions(embedding=False),
        # The pipeline this one grew from, for comparison: the 50 functions and whole files that
        # share the most words, ranked by cosine and file name alone.
        "original": RetrievalOptions(
            first_stage="overlap",
            file_scores=False,
            evidence=False,
            neighbours=False,
            learned=False,
            candidates="all",
            prefilter=50,
            max_results=50,
            lexical_weight=0.0,
            normalise_cosine=False,
        ),
    }
)


def preset(name: str) -> RetrievalOptions:
    """The options of a name. Raises ConfigurationError for one that is not known."""
    try:
        return PRESETS[name]
    except KeyError:
        known = ", ".join(sorted(PRESETS))
        raise ConfigurationError(f"unknown retrieval preset {name!r}; known: {known}") from None
