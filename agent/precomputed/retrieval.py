"""Retrieval for agents: each by its own settings, over one index that all share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent.errors import SemanticConfigError, SemanticQueryError
from agent.precomputed.index import as_numbers
from agent.precomputed.settings import SemanticSettings, by_agent

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from agent.precomputed.index import SemanticResult, VectorIndex


class SemanticRetriever:
    """Safe for threads: nothing in it changes.

    Raises SemanticConfigError for an agent with two settings.
    """

    def __init__(self, index: VectorIndex, agents: Iterable[SemanticSettings]) -> None:
        self._index = index
        self._agents = by_agent(agents)

    def retrieve(self, agent_name: str, query: ArrayLike) -> tuple[SemanticResult, ...]:
        """What one query (d,) finds for an agent, best first.

        Raises SemanticConfigError for an unknown agent, SemanticQueryError for a query that cannot
        be compared.
        """
        values = as_numbers(query)
        if values.ndim != 1:
            raise SemanticQueryError("one query is an array of one dimension; see retrieve_many")
        return self.retrieve_many(agent_name, values[None, :])[0]

    def retrieve_many(
        self, agent_name: str, queries: ArrayLike
    ) -> tuple[tuple[SemanticResult, ...], ...]:
        """The same for each row of `queries` (m, d), by one matrix product."""
        settings = self._settings(agent_name)
        return self._index.search(
            queries,
            settings.top_k,
            at_least=settings.similarity_threshold,
            tags=settings.filter_by_tags,
        )

    def _settings(self, agent_name: str) -> SemanticSettings:
        found = self._agents.get(agent_name)
        if found is None:
            known = ", ".join(sorted(self._agents)) or "none"
            raise SemanticConfigError(f"no settings for the agent {agent_name!r}; known: {known}")
        return found
