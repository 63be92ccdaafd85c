"""Ranks the files and pieces of a snapshot for a problem. The first stage of `HybridRetriever`
(`stages`) orders candidates with a learned ranker; the second (`fuse`) adds the cosine of an
embedding model.
"""

from agent.retrieval.ranking.evidence import Evidence as Evidence
from agent.retrieval.ranking.graph import neighbours as neighbours
from agent.retrieval.ranking.lexical import K1 as K1
from agent.retrieval.ranking.lexical import NAME_WEIGHT as NAME_WEIGHT
from agent.retrieval.ranking.lexical import LexicalQuery as LexicalQuery
from agent.retrieval.ranking.lexical import inverse_frequency as inverse_frequency
from agent.retrieval.ranking.lexical import length_norm as length_norm
from agent.retrieval.ranking.lexical import make_query as make_query
from agent.retrieval.ranking.lexical import without_boilerplate as without_boilerplate
from agent.retrieval.ranking.mentions import MentionPlace as MentionPlace
from agent.retrieval.ranking.mentions import Mentions as Mentions
from agent.retrieval.ranking.mentions import in_scope as in_scope
from agent.retrieval.ranking.mentions import read_mentions as read_mentions
from agent.retrieval.ranking.mentions import text_parts as text_parts
from agent.retrieval.ranking.ranker import PRESETS as PRESETS
from agent.retrieval.ranking.ranker import RetrievalOptions as RetrievalOptions
from agent.retrieval.ranking.ranker import load_shipped as load_shipped
from agent.retrieval.ranking.ranker import preset as preset
from agent.retrieval.ranking.retriever import HybridRetriever as HybridRetriever
from agent.retrieval.ranking.retriever import no_words as no_words
from agent.retrieval.ranking.signals import Signals as Signals
from agent.retrieval.ranking.stages import candidate_files as candidate_files
from agent.retrieval.ranking.stages import signals_over as signals_over
