"""Evidence for functions from the corpora beside the code, if a setting names them.

`solve` imports this module only in that case. The miner bundle does not contain it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError
from agent.search import Label

if TYPE_CHECKING:
    from agent.index import Index
    from agent.protocols import Reporter
    from agent.ranking import EvidenceSource, RetrievalOptions
    from agent.search import SearchPaths
    from agent.settings import Settings


def read_labels(names: Iterable[str]) -> tuple[Label, ...]:
    """Return the corpora by name, each once. Raises ConfigurationError for an unknown name."""
    found: dict[Label, None] = {}
    for name in names:
        try:
            found[Label(name)] = None
        except ValueError:
            known = ", ".join(label.value for label in Label)
            raise ConfigurationError(
                f"unknown corpus {name!r} (--corpus, PATCHSHOT_CORPORA); known: {known}"
            ) from None
    return tuple(found)


def places_of(settings: Settings) -> SearchPaths:
    """Return the cache and data paths of the settings."""
    from agent.search import SearchPaths

    return SearchPaths(settings.cache_dir, settings.data_dir)


def evidence_sources(
    settings: Settings, options: RetrievalOptions, index: Index, reporter: Reporter
) -> tuple[EvidenceSource, ...]:
    """Return the evidence sources: mentions in the problem, and the corpora of the settings.

    Raises ConfigurationError.
    """
    from agent.history import HunkHistory, history_path
    from agent.ranking import mention_evidence
    from agent.search import (
        FEATURE,
        FEATURES,
        DocumentSource,
        HunkEvidence,
        IntentSource,
        PassageEvidence,
        WordIndexCache,
    )

    labels = read_labels(settings.corpora)
    places = places_of(settings)
    shelves = WordIndexCache(places.cache / "shelves.sqlite", reporter)
    found: list[EvidenceSource] = [mention_evidence]
    for source in (DocumentSource(index), IntentSource(index)):
        if source.label in labels and FEATURES[source.label] not in options.without:
            found.append(PassageEvidence(source, shelves))
    if Label.HISTORY in labels and FEATURE not in options.without:
        found.append(HunkEvidence(HunkHistory(history_path(places.index), reporter)))
    return tuple(found)
