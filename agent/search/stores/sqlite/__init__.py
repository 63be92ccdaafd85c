"""The embedded vector store: one SQLite file, searched exactly or by an approximate index.

The index also serves a matrix that is in no store (`open_matrix_index`).
"""

from agent.search.stores.sqlite.large import Scale
from agent.search.stores.sqlite.matrix import MatrixIndex, open_matrix_index
from agent.search.stores.sqlite.store import SqliteStore

__all__ = ["MatrixIndex", "Scale", "SqliteStore", "open_matrix_index"]
