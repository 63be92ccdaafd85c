"""Turns texts into vectors: `ParallelEmbedder` through a `BatchEmbedder` (a server, or
`local.LocalEmbedder`), and `StaticEncoder`, which needs no model server, during indexing.
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
    "read_static",
    "static_cosines",
    "static_in",
    "vector_key",
    "write_static",
]
