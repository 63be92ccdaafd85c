"""The code index: files cut into pieces, with the terms and references of each. `Index` loads a
`Corpus`: the pieces of some files and the postings of a query's terms.
"""

from agent.retrieval.index.chunking import Piece, TreeSitterChunker, split_lines
from agent.retrieval.index.contents import BlockBuilder, PieceEncoder, PieceTerms
from agent.retrieval.index.corpus import Corpus, spread
from agent.retrieval.index.index import (
    PROSE_AND_DATA,
    Index,
    IndexSummary,
    all_files,
    is_target,
    target_files,
)
from agent.retrieval.index.outline import GRAMMARS
from agent.retrieval.index.references import ModuleTable, imports
from agent.retrieval.index.words import WORD, Terms, name_hash, term_hash, without_suffix

__all__ = [
    "GRAMMARS",
    "PROSE_AND_DATA",
    "WORD",
    "BlockBuilder",
    "Corpus",
    "Index",
    "IndexSummary",
    "ModuleTable",
    "Piece",
    "PieceEncoder",
    "PieceTerms",
    "Terms",
    "TreeSitterChunker",
    "all_files",
    "imports",
    "is_target",
    "name_hash",
    "split_lines",
    "spread",
    "target_files",
    "term_hash",
    "without_suffix",
]
