"""Retrieval for several agents. Each has its own settings, and all share one index."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent.errors import SemanticConfigError, SemanticQueryError
from agent.search.precomputed.index import as_numbers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from agent.search.precomputed.index import SemanticResult, VectorIndex

MAX_TOP_K = 10_000
"""A larger number would return most of the index and is probably a mistake."""


class SemanticSettings(BaseModel):
    """The settings of one agent. Results must have all of `filter_by_tags`."""

    # Strict mode rejects mistakes such as "5" for a number or a string in place of a list of tags.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    agent_name: str = Field(min_length=1, max_length=200)
    top_k: int = Field(5, ge=1, le=MAX_TOP_K)
    similarity_threshold: float = Field(0.0, ge=-1.0, le=1.0, allow_inf_nan=False)
    filter_by_tags: tuple[str, ...] = ()


_SEVERAL: TypeAdapter[list[SemanticSettings]] = TypeAdapter(list[SemanticSettings])


def make_settings(**values: Any) -> SemanticSettings:
    """Make one agent's settings from plain values. Raises SemanticConfigError."""
    return _checked([values], "settings")[0]


def by_agent(settings: Iterable[SemanticSettings]) -> Mapping[str, SemanticSettings]:
    """Return settings by the agent's name. Raises SemanticConfigError for a repeated name."""
    found: dict[str, SemanticSettings] = {}
    for one in settings:
        if found.setdefault(one.agent_name, one) != one:
            raise SemanticConfigError(f"agent {one.agent_name!r} has two settings; keep one")
    return MappingProxyType(found)


def read_settings(path: Path) -> Mapping[str, SemanticSettings]:
    """Read settings from a file: a JSON list of objects, or TOML with `[[agents]]` tables.

    Raises SemanticConfigError with the file name and the problem.
    """
    try:
        text = path.read_text("utf-8")
        value = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise SemanticConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise SemanticConfigError(f"{path}: neither JSON nor TOML ({error}); correct it") from None
    return by_agent(_checked(value.get("agents") if isinstance(value, dict) else value, str(path)))


def _checked(value: Any, place: str) -> list[SemanticSettings]:
    try:
        # Convert to JSON, because strict mode only accepts JSON arrays for tuples.
        return _SEVERAL.validate_json(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise SemanticConfigError(f"{place}: {_what(error)}") from None


def _what(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"{error}; give plain values"
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "agents"
    return f"{where}: {first['msg'].lower()}"


class SemanticRetriever:
    """Searches one index for agents by name. Immutable and therefore thread-safe.

    Raises SemanticConfigError if an agent has two settings.
    """

    def __init__(self, index: VectorIndex, agents: Iterable[SemanticSettings]) -> None:
        self._index = index
        self._agents = by_agent(agents)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._index)

    def retrieve(
        self, agent: str | SemanticSettings, query: ArrayLike
    ) -> tuple[SemanticResult, ...]:
        """Return the results of one query (d,) for an agent, best first.

        `agent` is the name of one, or settings that only this call uses. Raises SemanticConfigError
        for an unknown name, and SemanticQueryError for an invalid query.
        """
        values = as_numbers(query)
        if values.ndim != 1:
            raise SemanticQueryError("one query is an array of one dimension; see retrieve_batch")
        return self.retrieve_batch(agent, values[None, :])[0]

    def retrieve_batch(
        self, agent: str | SemanticSettings, queries: ArrayLike
    ) -> tuple[tuple[SemanticResult, ...], ...]:
        """Search for each row of `queries` (m, d) with one matrix product."""
        settings = agent if isinstance(agent, SemanticSettings) else self._named(agent)
        return self._index.search(
            queries,
            settings.top_k,
            at_least=settings.similarity_threshold,
            tags=settings.filter_by_tags,
        )

    def _named(self, agent_name: str) -> SemanticSettings:
        found = self._agents.get(agent_name)
        if found is None:
            known = ", ".join(sorted(self._agents)) or "none"
            raise SemanticConfigError(f"no settings for the agent {agent_name!r}; known: {known}")
        return found
