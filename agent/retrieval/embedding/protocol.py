"""The interface between embedding models and `agent.retrieval.embedding.parallel.ParallelEmbedder`.

A model (over HTTP, or in this process) implements `BatchEmbedder`: one batch, one attempt.
`ParallelEmbedder` handles retries, concurrency, splitting of long inputs, normalisation and
caching. Models must not repeat these.

Errors come from `agent.errors`: InputTooLong for one text that is longer than the model takes, and
EmbeddingsUnsupported where the server has no embeddings at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EmbeddingKind = Literal["query", "document"]


class BatchEmbedder(Protocol):
    """One embedding model: turns one batch of texts into vectors, in one attempt.

    `name` identifies the model and every setting that changes its vectors (model, server,
    dimensions asked for, prefixes, truncation): it is part of every cache key. `max_batch` is the
    largest number of texts of a call, `max_concurrency` the largest number of calls at once
    (None: no limit of its own).
    """

    @property
    def name(self) -> str:
        """The model and every setting that changes its vectors."""
        ...

    @property
    def max_batch(self) -> int:
        """Largest number of texts in a call, at least 1."""
        ...

    @property
    def max_concurrency(self) -> int | None:
        """Largest number of calls at once; None: no limit of its own."""
        ...

    async def embed_batch(
        self, texts: Sequence[str], *, kind: EmbeddingKind
    ) -> NDArray[np.float32]:
        """Embed `texts` (1 to `max_batch` non-empty texts).

        Returns shape (len(texts), d), in the order of `texts`; rows need not be normalised. Raises
        InputTooLong, EmbeddingsUnsupported, AuthenticationFailed and UnknownModel, which are not
        retried, or another ProviderError, which is.
        """
        ...
