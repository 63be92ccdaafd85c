"""What corpora beside the code say for functions, where a setting names them.

Nothing of `solve` imports this module unless one does: it is no part of the bundle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent.corpora.passages import Label
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.corpora.opening import Places
    from agent.protocols import Reporter
    from agent.retrieval.evidence import EvidenceSource
    from agent.retrieval.index import Index
    from agent.retrieval.options import RetrievalOptions
    from agent.settings import Settings


def read_labels(names: Iterable[str]) -> tuple[Label, ...]:
    """Corpora by name, each once. Raises ConfigurationError for one that there is not."""
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


def places_of(settings: Settings) -> Places:
    """Where the settings keep things."""
    from agent.corpora.opening import Places

    return Places(settings.cache_dir, settings.data_dir)


def evidence_sources(
    settings: Settings, options: RetrievalOptions, index: Index, reporter: Reporter
) -> tuple[EvidenceSource, ...]:
    """What the problem mentions, and the corpora of the settings. Raises ConfigurationError."""
    from agent.corpora.documents import DocumentSource
    from agent.corpora.evidence import FEATURES, PassageEvidence
    from agent.corpora.history.evidence import FEATURE, HunkEvidence
    from agent.corpora.history.store import HunkHistory, hunks_path
    from agent.corpora.intents import IntentSource
    from agent.corpora.shelf import Shelves
    from agent.retrieval.evidence import mention_evidence

    labels = read_labels(settings.corpora)
    places = places_of(settings)
    shelves = Shelves(places.cache / "shelves.sqlite", reporter)
    found: list[EvidenceSource] = [mention_evidence]
    for source in (DocumentSource(index), IntentSource(index)):
        if source.label in labels and FEATURES[source.label] not in options.without:
            found.append(PassageEvidence(source, shelves))
    if Label.HISTORY in labels and FEATURE not in options.without:
        found.append(HunkEvidence(HunkHistory(hunks_path(places.index), reporter)))
    return tuple(found)
