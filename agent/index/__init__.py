"""The code index: files cut into pieces, with the terms and references of each piece.

`Index` loads a `Corpus`: the pieces of some files of a snapshot and the postings of a query's
terms. Each file content is cut once (`chunking`, `outline`), encoded in blocks (`blocks`) and
stored in a cache file. `Terms` splits text into the terms that are matched; `TreeSitterChunker`
cuts one file.
"""

from agent.index.chunking import Piece, TreeSitterChunker, split_lines
from agent.index.contents import PieceTerms
from agent.index.corpus import Corpus
from agent.index.grammars import GRAMMARS
from agent.index.identifiers import WORD, Terms, term_hash, without_suffix
from agent.index.index import (
    PROSE_AND_DATA,
    Index,
    IndexSummary,
    all_files,
    is_target,
    target_files,
)
from agent.index.records import PieceEncoder
from agent.index.references import ModuleTable, imports
from agent.index.vocabulary import WordScanner

__all__ = [
    "GRAMMARS",
    "PROSE_AND_DATA",
    "WORD",
    "Corpus",
    "Index",
    "IndexSummary",
    "ModuleTable",
    "Piece",
    "PieceEncoder",
    "PieceTerms",
    "Terms",
    "TreeSitterChunker",
    "WordScanner",
    "all_files",
    "imports",
    "is_target",
    "split_lines",
    "target_files",
    "term_hash",
    "without_suffix",
]
