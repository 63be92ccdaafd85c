"""Ranks the files and pieces of a snapshot for a problem. The first stage of `HybridRetriever`
(`stages`) orders candidates with a learned ranker; the second (`fuse`) adds the cosine of an
embedding model.
"""

from agent.retrieval.ranking.evidence import (
    Evidence,
    EvidenceSource,
    mention_evidence,
)
from agent.retrieval.ranking.graph import neighbours
from agent.retrieval.ranking.lexical import (
    K1,
    NAME_WEIGHT,
    LexicalQuery,
    inverse_frequency,
    length_norm,
    make_query,
    without_boilerplate,
)
from agent.retrieval.ranking.mentions import (
    MentionPlace,
    Mentions,
    in_scope,
    read_mentions,
    text_parts,
)
from agent.retrieval.ranking.ranker import PRESETS, RetrievalOptions, load_shipped, preset
from agent.retrieval.ranking.retriever import HybridRetriever, no_words
from agent.retrieval.ranking.signals import Signals
from agent.retrieval.ranking.stages import candidate_files, signals_over

__all__ = [
    "K1",
    "NAME_WEIGHT",
    "PRESETS",
    "Evidence",
    "EvidenceSource",
    "HybridRetriever",
    "LexicalQuery",
    "MentionPlace",
    "Mentions",
    "RetrievalOptions",
    "Signals",
    "candidate_files",
    "in_scope",
    "inverse_frequency",
    "length_norm",
    "load_shipped",
    "make_query",
    "mention_evidence",
    "neighbours",
    "no_words",
    "preset",
    "read_mentions",
    "signals_over",
    "text_parts",
    "without_boilerplate",
]
