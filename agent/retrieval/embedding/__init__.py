"""Turns texts into vectors.

`ParallelEmbedder` makes an `Embedder` from any `BatchEmbedder` (a server, or
`local.LocalEmbedder`), with retries and a `VectorCache`. `StaticEncoder` ships with the package,
needs no model server, and encodes pieces during indexing.
"""

from agent.retrieval.embedding.parallel import EmbeddingOptions, ParallelEmbedder
from agent.retrieval.embedding.protocol import BatchEmbedder, EmbeddingKind
from agent.retrieval.embedding.static import STATIC_MODEL, StaticEncoder, static_cosines, static_in
from agent.retrieval.embedding.vector_cache import VectorCache

__all__ = [
    "STATIC_MODEL",
    "BatchEmbedder",
    "EmbeddingKind",
    "EmbeddingOptions",
    "ParallelEmbedder",
    "StaticEncoder",
    "VectorCache",
    "static_cosines",
    "static_in",
]
