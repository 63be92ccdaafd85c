"""Ranks the files and pieces of a snapshot for a problem.

Start from `HybridRetriever`. Its first stage (`stages`) measures BM25, mentions, commit history and
static vectors, selects candidates by the plain sum of these, and orders them with a learned ranker.
Its second stage (`fuse`) adds the cosine of an embedding model. `RerankingRetriever` adds a
cross-encoder behind it. `RetrievalOptions` turns parts on
and off.
"""

from agent.ranking.evidence import MAX_AMBIGUITY, Evidence, EvidenceSource, mention_evidence
from agent.ranking.graph import neighbours
from agent.ranking.history_evidence import LocalNames, spread_shares
from agent.ranking.lexical import (
    K1,
    NAME_WEIGHT,
    LexicalQuery,
    inverse_frequency,
    length_norm,
    make_query,
)
from agent.ranking.mentions import Frame, MentionPlace, Mentions, read_mentions, text_parts
from agent.ranking.options import RetrievalOptions, preset, split_name
from agent.ranking.ranker import load_shipped
from agent.ranking.reranking import RerankingRetriever
from agent.ranking.retriever import HybridRetriever, no_words
from agent.ranking.scope import in_scope
from agent.ranking.signals import Signals
from agent.ranking.stages import RankingInput, candidate_files, signals_over
from agent.ranking.texts import document_text, without_boilerplate

__all__ = [
    "K1",
    "MAX_AMBIGUITY",
    "NAME_WEIGHT",
    "Evidence",
    "EvidenceSource",
    "Frame",
    "HybridRetriever",
    "LexicalQuery",
    "LocalNames",
    "MentionPlace",
    "Mentions",
    "RankingInput",
    "RerankingRetriever",
    "RetrievalOptions",
    "Signals",
    "candidate_files",
    "document_text",
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
    "split_name",
    "spread_shares",
    "text_parts",
    "without_boilerplate",
]
