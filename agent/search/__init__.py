"""Search over the corpora of a project: code, history, documents, intents, accepted patches.

Each corpus is read as passages; `Pool` searches them by words and by vectors and merges the results
into one order. Vectors are stored in a vector store (`stores`). `plans` searches by several intents
at once, and `precomputed` searches vectors that other programs computed.
"""

from agent.search.expansion import KeywordWriter
from agent.search.history import Memory
from agent.search.intents import (
    MAX_CODE_TOKENS,
    IntentCounts,
    IntentFile,
    IntentWriter,
    write_symbols,
)
from agent.search.passages import Label, Passage, PoolHit, PoolResults, without_labels
from agent.search.pool import Pool, make_pool, matching_chunks, named_first
from agent.search.project import SearchPaths, project_description, project_name
from agent.search.symbols import Symbol, read_symbols
from agent.search.vectors import CorpusReport, collection_name

__all__ = [
    "MAX_CODE_TOKENS",
    "CorpusReport",
    "IntentCounts",
    "IntentFile",
    "IntentWriter",
    "KeywordWriter",
    "Label",
    "Memory",
    "Passage",
    "Pool",
    "PoolHit",
    "PoolResults",
    "SearchPaths",
    "Symbol",
    "collection_name",
    "make_pool",
    "matching_chunks",
    "named_first",
    "project_description",
    "project_name",
    "read_symbols",
    "without_labels",
    "write_symbols",
]
