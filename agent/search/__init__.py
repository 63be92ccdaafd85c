"""Search over the corpora of a project: code, history, documents, intents, accepted patches.

`corpora` reads each corpus as passages; `Pool` searches them by words and by vectors and merges the
results into one order. Vectors are stored in a vector store (`stores`). `plans` searches by several
intents at once, and `precomputed` searches vectors that other programs computed.

    from agent.search import open_pool

    async with open_pool("./target", corpora=("code", "docs")) as pool:
        results = await pool.search("where are cookies parsed", top_k=5)
    for hit in results.hits:
        print(hit.passage.corpus, hit.passage.place, round(hit.score, 3))
"""

from agent.search.code_results import matching_chunks, named_first
from agent.search.corpora.documents import DocumentSource
from agent.search.corpora.folder import read_folder
from agent.search.corpora.intent_writing import MAX_CODE_TOKENS, IntentCounts, IntentWriter
from agent.search.corpora.intents import IntentFile, IntentSource
from agent.search.corpora.memory import Memory
from agent.search.corpora.symbol_file import read_symbols_file, write_symbols
from agent.search.corpora.symbols import Symbol, read_symbols
from agent.search.expansion import ExpandingRetriever, FindWords, ProjectWordsFinder
from agent.search.keywords import KeywordWriter
from agent.search.memory_evidence import MemoryEvidence
from agent.search.opening import SearchPaths, make_pool, open_pool
from agent.search.passage_evidence import FEATURES, PassageEvidence
from agent.search.passages import Label, Passage, PoolHit, PoolResults
from agent.search.pool import Pool
from agent.search.project import project_description, project_name
from agent.search.text_format import without_labels
from agent.search.vectors import CorpusReport, collection_name
from agent.search.word_index import WordIndexCache

__all__ = [
    "FEATURES",
    "MAX_CODE_TOKENS",
    "CorpusReport",
    "DocumentSource",
    "ExpandingRetriever",
    "FindWords",
    "IntentCounts",
    "IntentFile",
    "IntentSource",
    "IntentWriter",
    "KeywordWriter",
    "Label",
    "Memory",
    "MemoryEvidence",
    "Passage",
    "PassageEvidence",
    "Pool",
    "PoolHit",
    "PoolResults",
    "ProjectWordsFinder",
    "SearchPaths",
    "Symbol",
    "WordIndexCache",
    "collection_name",
    "make_pool",
    "matching_chunks",
    "named_first",
    "open_pool",
    "project_description",
    "project_name",
    "read_folder",
    "read_symbols",
    "read_symbols_file",
    "without_labels",
    "write_symbols",
]
