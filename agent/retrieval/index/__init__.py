"""The code index: files cut into pieces, with the terms and references of each. `Index` loads a
`Corpus`: the pieces of some files and the postings of a query's terms.
"""

from agent.retrieval.index.chunking import Piece as Piece
from agent.retrieval.index.chunking import TreeSitterChunker as TreeSitterChunker
from agent.retrieval.index.chunking import make_parser as make_parser
from agent.retrieval.index.chunking import split_lines as split_lines
from agent.retrieval.index.contents import BlockBuilder as BlockBuilder
from agent.retrieval.index.contents import PieceEncoder as PieceEncoder
from agent.retrieval.index.contents import PieceTerms as PieceTerms
from agent.retrieval.index.corpus import Corpus as Corpus
from agent.retrieval.index.corpus import spread as spread
from agent.retrieval.index.index import PROSE_AND_DATA as PROSE_AND_DATA
from agent.retrieval.index.index import Index as Index
from agent.retrieval.index.index import IndexSummary as IndexSummary
from agent.retrieval.index.index import all_files as all_files
from agent.retrieval.index.index import is_target as is_target
from agent.retrieval.index.index import target_files as target_files
from agent.retrieval.index.outline import GRAMMARS as GRAMMARS
from agent.retrieval.index.outline import INSIDE as INSIDE
from agent.retrieval.index.references import ModuleTable as ModuleTable
from agent.retrieval.index.references import imports as imports
from agent.retrieval.index.words import WORD as WORD
from agent.retrieval.index.words import Terms as Terms
from agent.retrieval.index.words import name_hash as name_hash
from agent.retrieval.index.words import term_hash as term_hash
from agent.retrieval.index.words import without_suffix as without_suffix
