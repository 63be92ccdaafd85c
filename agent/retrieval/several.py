"""Many queries over one corpus: what searching for a plan's intents needs.

Loading a corpus costs as much as scoring one query. Here it is loaded with the terms of all queries
of a batch at once, and again only when a later batch brings terms that no earlier one had; each
query is then scored over the postings of its own terms, as `stages` does for the one problem.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.candidates import candidate_files
from agent.retrieval.identifiers import Terms
from agent.retrieval.lexical import LexicalQuery, make_query
from agent.retrieval.mentions import read_mentions
from agent.retrieval.stages import Source, signals_over

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Snapshot
    from agent.retrieval.corpus import Corpus
    from agent.retrieval.evidence import EvidenceSource
    from agent.retrieval.index import Index
    from agent.retrieval.options import RetrievalOptions
    from agent.retrieval.signals import Signals
    from agent.types import Problem


@dataclass(slots=True)
class SeveralQueries:
    """Scores texts over the files that `about` may mean. Not safe for threads.

    Neither history nor neighbours take part: they say what an issue changes, and a plan's intents
    are parts of one issue.
    """

    about: Problem
    snapshot: Snapshot
    index: Index
    sources: tuple[EvidenceSource, ...]
    options: RetrievalOptions
    cancel: threading.Event = field(default_factory=threading.Event)
    _terms: Terms = field(default_factory=Terms)
    _corpus: Corpus | None = None
    _known: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    @property
    def corpus(self) -> Corpus:
        """As last loaded; its pieces and their numbers are always the same."""
        return self._loaded(self._known)

    def prepare(self, text: str) -> None:
        """Load the terms of a text too: what later queries will be made of."""
        self._loaded(np.array(sorted(self._hashes(text)), dtype=np.uint64))

    def signals(self, problems: Sequence[Problem]) -> list[Signals]:
        """Signals of each, over the same pieces. Raises `pool.Cancelled`."""
        queries = [make_query(problem, self._terms) for problem in problems]
        wanted = [query.hashes for query in queries]
        corpus = self._loaded(np.unique(np.concatenate(wanted)) if wanted else self._known)
        options = replace(self.options, neighbours=False)
        found = []
        for problem, query in zip(problems, queries, strict=True):
            own = replace(self._source(corpus), corpus=narrowed(corpus, self._known, query))
            mentions = read_mentions(problem)
            found.append(signals_over(problem, mentions, own, query, self._terms, options))
        return found

    def _hashes(self, text: str) -> set[int]:
        from agent.types import Problem

        return set(make_query(Problem(text, ""), self._terms).hashes.tolist())

    def _source(self, corpus: Corpus) -> Source:
        return Source(self.snapshot, corpus, self.index.encoder, None, self.sources)

    def _loaded(self, wanted: NDArray[np.uint64]) -> Corpus:
        if self._corpus is None or not np.isin(wanted, self._known).all():
            self._known = np.union1d(self._known, wanted)
            files = candidate_files(self.snapshot, self.about, read_mentions(self.about))
            self._corpus = self.index.load(self.snapshot, files, self._known, self.cancel)
        return self._corpus


def narrowed(corpus: Corpus, known: NDArray[np.uint64], query: LexicalQuery) -> Corpus:
    """The corpus with the postings of the `query`'s terms only, numbered as there.

    `known` uint64 (k,), ascending: the terms that the corpus was loaded with, the query's among
    them.
    """
    numbers = np.full(known.size, -1, dtype=np.int64)
    numbers[np.searchsorted(known, query.hashes)] = np.arange(query.hashes.size)
    terms = numbers[corpus.term]
    kept = terms >= 0
    return replace(
        corpus,
        piece=corpus.piece[kept],
        term=terms[kept],
        counts=corpus.counts[kept],
        name_counts=corpus.name_counts[kept],
    )
