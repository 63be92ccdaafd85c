"""Search over the corpora of a project: code, history, documents, intents, accepted patches.

Each corpus is read as passages; `Pool` searches them by words and by vectors and merges the results
into one order. Vectors are stored in a vector store (`stores`). `plans` searches by several intents
at once, and `precomputed` searches vectors that other programs computed.
"""

from agent.search.expansion import KeywordWriter as KeywordWriter
from agent.search.history import Memory as Memory
from agent.search.intents import MAX_CODE_TOKENS as MAX_CODE_TOKENS
from agent.search.intents import IntentCounts as IntentCounts
from agent.search.intents import IntentFile as IntentFile
from agent.search.intents import IntentWriter as IntentWriter
from agent.search.intents import write_symbols as write_symbols
from agent.search.passages import Label as Label
from agent.search.passages import Passage as Passage
from agent.search.passages import PoolHit as PoolHit
from agent.search.passages import PoolResults as PoolResults
from agent.search.passages import without_labels as without_labels
from agent.search.pool import Pool as Pool
from agent.search.pool import make_pool as make_pool
from agent.search.pool import matching_chunks as matching_chunks
from agent.search.pool import named_first as named_first
from agent.search.pool import score_name as score_name
from agent.search.project import SearchPaths as SearchPaths
from agent.search.project import project_description as project_description
from agent.search.project import project_name as project_name
from agent.search.symbols import read_symbols as read_symbols
from agent.search.vectors import CorpusReport as CorpusReport
from agent.search.vectors import StaticEmbedder as StaticEmbedder
from agent.search.vectors import collection_name as collection_name
