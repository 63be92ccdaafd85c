"""Embeds queries for the search of precomputed vectors."""

from __future__ import annotations

import math
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError
from agent.types.events import Event, Notice
from agent.wiring.embedding import make_embedder
from agent.wiring.model import Recordings, SharedClient

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.settings import Settings
    from agent.types.protocols import Reporter


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedQuery:
    """The vector of a query, float32 (d,), and its source: an `Embedder.name` or a file."""

    vector: NDArray[np.float32]
    made_by: str


def _of_query(reporter: Reporter) -> Reporter:
    """Return a reporter that removes ": ranked without" from notices: this search has no
    fallback.
    """

    def report(event: Event) -> None:
        if isinstance(event, Notice):
            event = replace(event, message=event.message.removesuffix(": ranked without"))
        reporter(event)

    return report


async def embed_query(settings: Settings, text: str, reporter: Reporter) -> EmbeddedQuery:
    """Embed the query with the embedder of the settings.

    Raises ConfigurationError if there is none: the static vectors of this package cannot be
    compared with those of another program. Raises ProviderError if the query cannot be embedded.
    """
    async with AsyncExitStack() as stack:
        embedder = await make_embedder(
            stack,
            settings,
            SharedClient(stack),
            _of_query(reporter),
            lambda: math.inf,
            Recordings(stack),
        )
        if embedder is None:
            raise ConfigurationError(
                "a query in words needs the embedder that made the vectors: set"
                " PATCHSHOT_EMBED_MODEL (and PATCHSHOT_EMBED_BASE_URL) or --embed local; or give"
                " the query's own vector by --vector FILE"
            )
        rows = await embedder.embed([text], kind="query")
        if not rows[0].any():
            raise ConfigurationError(
                f"{embedder.name} could not embed the query; try again, or give --vector FILE"
            )
        return EmbeddedQuery(rows[0], embedder.name)
