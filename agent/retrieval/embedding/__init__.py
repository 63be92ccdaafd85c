"""Turns texts into vectors.

`ParallelEmbedder` makes an `Embedder` from any `BatchEmbedder` (a server, or
`local.LocalEmbedder`), with retries and a `VectorCache`. `StaticEncoder` ships with the package,
needs no model server, and encodes pieces during indexing.
"""

from agent.retrieval.embedding.parallel import (
    BatchEmbedder,
    EmbeddingKind,
    EmbeddingOptions,
    ParallelEmbedder,
    VectorCache,
    vector_key,
)
from agent.retrieval.embedding.static import (
    NAME_BOOST,
    STATIC_MODEL,
    StaticEncoder,
    load_static,
    read_static,
    static_cosines,
    static_in,
    write_static,
)

__all__ = [
    "NAME_BOOST",
    "STATIC_MODEL",
    "BatchEmbedder",
    "EmbeddingKind",
    "EmbeddingOptions",
    "ParallelEmbedder",
    "StaticEncoder",
    "VectorCache",
    "load_static",
    "read_static",
    "static_cosines",
    "static_in",
    "vector_key",
    "write_static",
]
