"""Named sets of retrieval options: what `--preset` chooses from.

Every name also comes with a switch behind it, to measure what a part is worth: `lexical-history` is
`lexical` without the group `history`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from agent.errors import ConfigurationError
from agent.retrieval.options import SWITCHES, RetrievalOptions

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
            boilerplate=False,
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
    base, switch = split_name(name)
    options = PRESETS[base]
    return replace(options, without=options.without | {switch}) if switch else options


def split_name(name: str) -> tuple[str, str]:
    """A preset's own name and the switch behind it, "" for none.

    Raises ConfigurationError for what is not known.
    """
    base, _, switch = name.partition("-")
    if base not in PRESETS or (switch not in SWITCHES and name != base):
        raise ConfigurationError(
            f"unknown retrieval preset {name!r}; known: {', '.join(sorted(PRESETS))}, and each "
            f"with -X behind it, which leaves X out: {', '.join(SWITCHES)}"
        )
    return base, switch
