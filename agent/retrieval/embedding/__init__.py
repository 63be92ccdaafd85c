"""Turns texts into vectors: `ParallelEmbedder` through a `BatchEmbedder` (a server), and
`StaticEncoder`, which needs no server, during indexing.
"""

from agent.retrieval.embedding.parallel import BatchEmbedder as BatchEmbedder
from agent.retrieval.embedding.parallel import EmbeddingKind as EmbeddingKind
from agent.retrieval.embedding.parallel import EmbeddingOptions as EmbeddingOptions
from agent.retrieval.embedding.parallel import ParallelEmbedder as ParallelEmbedder
from agent.retrieval.embedding.parallel import open_vector_cache as open_vector_cache
from agent.retrieval.embedding.parallel import vector_key as vector_key
from agent.retrieval.embedding.static import NAME_BOOST as NAME_BOOST
from agent.retrieval.embedding.static import STATIC_MODEL as STATIC_MODEL
from agent.retrieval.embedding.static import StaticEncoder as StaticEncoder
from agent.retrieval.embedding.static import read_static as read_static
from agent.retrieval.embedding.static import static_cosines as static_cosines
from agent.retrieval.embedding.static import static_in as static_in
