"""Vectors that other programs computed: a folder with one JSON file for each vector.

`load_vectors` reads a folder into a `VectorIndex`, `import_vectors` writes the index into a vector
store, and `write_vector` writes files. `SemanticRetriever` searches one index for several agents
with separate settings.
"""

from agent.search.precomputed.agents import (
    MAX_TOP_K,
    SemanticRetriever,
    SemanticSettings,
    make_settings,
    read_settings,
)
from agent.search.precomputed.index import SkippedVector, VectorIndex, cosine_similarity
from agent.search.precomputed.loading import MANY, load_vectors
from agent.search.precomputed.store_import import (
    PrecomputedResult,
    found_in_folder,
    found_in_store,
    import_vectors,
    say_texts,
    text_of,
)
from agent.search.precomputed.vector_files import (
    MAX_BYTES,
    Invalid,
    in_one_line,
    masked,
    parse_vector,
    write_vector,
)

__all__ = [
    "MANY",
    "MAX_BYTES",
    "MAX_TOP_K",
    "Invalid",
    "PrecomputedResult",
    "SemanticRetriever",
    "SemanticSettings",
    "SkippedVector",
    "VectorIndex",
    "cosine_similarity",
    "found_in_folder",
    "found_in_store",
    "import_vectors",
    "in_one_line",
    "load_vectors",
    "make_settings",
    "masked",
    "parse_vector",
    "read_settings",
    "say_texts",
    "text_of",
    "write_vector",
]
