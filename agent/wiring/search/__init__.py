"""Builds pools, stores, memory, intents and precomputed vectors from settings.

`agent solve` imports this package only if a setting names a corpus.
"""

from agent.wiring.search.background import PassageBackground
from agent.wiring.search.corpora import (
    StoreUse,
    intent_file,
    look_into_store,
    memory_of,
    open_intent_writer,
    open_pool,
    open_vector_store,
    word_finder,
)
from agent.wiring.search.evidence import evidence_sources, read_labels
from agent.wiring.search.precomputed import EmbeddedQuery, embed_query

__all__ = [
    "EmbeddedQuery",
    "PassageBackground",
    "StoreUse",
    "embed_query",
    "evidence_sources",
    "intent_file",
    "look_into_store",
    "memory_of",
    "open_intent_writer",
    "open_pool",
    "open_vector_store",
    "read_labels",
    "word_finder",
]
