"""One result, wherever the vectors lie: in their folder, or imported into a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import SemanticIndexError
from agent.precomputed.importing import without_text
from agent.precomputed.parsing import thawed
from agent.stores.base import score_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.precomputed.index import SemanticResult, VectorIndex
    from agent.protocols import Reporter
    from agent.stores.base import Match, Selection, VectorCollection


@dataclass(frozen=True, slots=True)
class Found:
    """One vector that was found. `similarity` is `score_of` the cosine, in [0, 1]."""

    id: str
    similarity: float
    tags: tuple[str, ...]
    text: str
    metadata: Mapping[str, Any]


class _Payload(BaseModel):
    """What `importing` wrote; from a shared store, so from a stranger."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str
    text: str
    metadata: dict[str, Any]


def found_in_folder(
    index: VectorIndex,
    query: NDArray[np.float32],
    top_k: int,
    tags: Iterable[str] = (),
    at_least: float = 0.0,
    reporter: Reporter | None = None,
) -> tuple[Found, ...]:
    """The best of a loaded folder for a query (d,). `at_least` is a similarity.

    `reporter` hears of texts that cannot be read.
    """
    (found,) = index.search(query[None, :], top_k, at_least=2.0 * at_least - 1.0, tags=tags)
    return tuple(_of_result(one, reporter) for one in found)


def found_in_store(
    collection: VectorCollection,
    query: NDArray[np.float32],
    top_k: int,
    selection: Selection,
    at_least: float = 0.0,
) -> tuple[Found, ...]:
    """The best of what was imported, of the selection. Raises StoreError."""
    (found,) = collection.search(query[None, :], top_k, selection, at_least=at_least)
    return tuple(map(_of_match, found))


def _of_result(result: SemanticResult, reporter: Reporter | None) -> Found:
    try:
        text = result.text
    except SemanticIndexError as error:
        text = ""  # its file is gone; the vector is there
        if reporter is not None:
            reporter(without_text(result.id, error))
    return Found(result.id, score_of(result.score), result.tags, text, thawed(result.metadata))


def _of_match(match: Match) -> Found:
    tags = match.fields.tags
    try:
        payload = _Payload.model_validate_json(match.payload)
    except ValidationError:
        return Found(match.id, match.score, tags, "", {})
    return Found(payload.id, match.score, tags, payload.text, payload.metadata)
