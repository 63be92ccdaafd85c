"""Words that are added to a problem before the code is ranked for it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.errors import BudgetExceeded, ProviderError
from agent.search.passages import CorpusSource, CorpusUnavailable
from agent.search.word_index import WordIndexCache, synonyms, word_for
from agent.shared.threads import in_thread
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.types import Problem, Ranking
    from agent.types.protocols import Reporter, Retriever, Snapshot

MAX_WORDS = 12
"""As many as a model is asked for."""

FindWords = Callable[["Problem", "Snapshot"], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class ExpandingRetriever:
    """A `Retriever` that adds words to one problem; other problems go on as they are.

    The words only rank: no prompt has them. If they cannot be found, ranking goes on without.
    """

    inner: Retriever
    problem: Problem | None  # None: every problem
    find_words: FindWords
    reporter: Reporter

    async def rank(self, problem: Problem, snapshot: Snapshot) -> Ranking:
        """Rank the problem with the added words, which a note of the ranking lists."""
        if self.problem is not None and problem != self.problem:
            return await self.inner.rank(problem, snapshot)
        try:
            words = await self.find_words(problem, snapshot)
        except (ProviderError, BudgetExceeded, OSError, CorpusUnavailable) as error:
            self.reporter(Notice(f"ranked without further words: {error}", "warning"))
            words = ()
        if not words:
            return await self.inner.rank(problem, snapshot)
        added = " ".join(words)
        ranking = await self.inner.rank(
            replace(problem, body=f"{problem.body}\n\n{added}".strip()), snapshot
        )
        return replace(ranking, notes=(*ranking.notes, f"ranked with the words {added} too"))


@dataclass(frozen=True, slots=True)
class ProjectWordsFinder:
    """Finds words that occur together with those of a problem's title in what symbols do."""

    source: CorpusSource
    word_indexes: WordIndexCache

    async def __call__(self, problem: Problem, snapshot: Snapshot) -> Sequence[str]:
        """Return at most MAX_WORDS, the strongest first. Raises CorpusUnavailable."""

        def find(cancel: threading.Event) -> list[str]:
            from agent.retrieval.index import Terms

            word_index = self.word_indexes.of(self.source.passages(snapshot, cancel))
            weights = dict.fromkeys(Terms().count_hashes(problem.title), 1.0)
            found = synonyms(word_index, weights)
            best = sorted(found, key=lambda term: (-found[term], term))
            words = (word_for(word_index, term) for term in best)
            return list(dict.fromkeys(word for word in words if word))[:MAX_WORDS]

        return await in_thread(find)
