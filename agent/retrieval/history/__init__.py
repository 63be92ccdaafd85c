"""The changes that past commits made, for ranking and search.

`CommitHistory` loads messages, changed files and changed functions (`HistoryTable`), `HunkHistory`
the lines that commits added. Both read each commit from git once and store it in the same cache
file (`table.CachedHistory`).
"""

from agent.retrieval.history.commits import MAX_HUNK_FILES, CommitFacts, Touch, read_commits
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
    "read_commits",
    "without_secrets",
]
