"""Evidence for functions from the corpora beside the code, if a setting names them.

`solve` imports this module only in that case. The miner bundle does not contain it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError
from agent.search import Label
from agent.settings import data_folder

if TYPE_CHECKING:
    from agent.retrieval.history import HunkFilter
    from agent.retrieval.index import Index
    from agent.retrieval.ranking import EvidenceSource, RetrievalOptions
    from agent.search import SearchPaths
    from agent.settings import Settings
    from agent.types.protocols import Reporter


def read_labels(names: Iterable[str]) -> tuple[Label, ...]:
    """Return the corpora by name, each once. A text may hold several with commas between them.

    Raises ConfigurationError for an unknown name.
    """
    found: dict[Label, None] = {}
    for name in (part.strip() for text in names for part in text.split(",")):
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

    return SearchPaths(settings.cache_dir, data_folder())


def hunk_filter(settings: Settings) -> HunkFilter:
    """Return which past changes the settings select."""
    from agent.retrieval.history import HunkFilter

    return HunkFilter(settings.history_exclude)


def evidence_sources(
    settings: Settings, options: RetrievalOptions, index: Index, reporter: Reporter
) -> tuple[EvidenceSource, ...]:
    """Return the evidence sources: mentions in the problem, and the corpora of the settings.

    Raises ConfigurationError.
    """
    from agent.retrieval.ranking import mention_evidence
    from agent.search import (
        DocumentSource,
        IntentSource,
        MemoryEvidence,
        PassageEvidence,
        WordIndexCache,
    )

    labels = read_labels(settings.corpora)
    if Label.VECTORS in labels and settings.precomputed is None:
        raise ConfigurationError("the corpus vectors needs its folder: give --precomputed FOLDER")
    places = places_of(settings)
    shelves = WordIndexCache(places.cache / "shelves.sqlite", reporter)
    found: list[EvidenceSource] = [mention_evidence]
    for source in (DocumentSource(index), IntentSource(index)):
        if source.label in labels:
            found.append(PassageEvidence(source, shelves))
    found.append(MemoryEvidence(places))
    return tuple(found)
