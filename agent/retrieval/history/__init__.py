"""The changes that past commits made: messages, files and functions (`CommitHistory`), and added
lines (`HunkHistory`). Each commit is read from git once and stored in one cache file.
"""

from agent.retrieval.history.commits import MAX_HUNK_FILES, CommitFacts, Touch
from agent.retrieval.history.hunks import (
    AddedHunk,
    CommitHunks,
    HunkHistory,
    without_secrets,
)
from agent.retrieval.history.table import (
    CommitHistory,
    HistoryTable,
    NoHistory,
    build_table,
    history_path,
    printable,
)

__all__ = [
    "MAX_HUNK_FILES",
    "AddedHunk",
    "CommitFacts",
    "CommitHistory",
    "CommitHunks",
    "HistoryTable",
    "HunkHistory",
    "NoHistory",
    "Touch",
    "build_table",
    "history_path",
    "printable",
    "without_secrets",
]
