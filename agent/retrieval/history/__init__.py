"""The changes that past commits made, as tables for ranking and search.

`CommitHistory` loads messages, changed files and changed functions (`HistoryTable`). `HunkHistory`
loads the lines that commits added (`HunkTable`). Both read each commit from git once and store it
in the same cache file (`agent.retrieval.history.cached`). `LineFollower` finds added lines in the
current files.
"""

from agent.retrieval.history.cached import NoHistory, history_path
from agent.retrieval.history.commit_history import (
    CommitHistory,
    HistoryTable,
    Renames,
    printable,
)
from agent.retrieval.history.commits import MAX_HUNK_FILES
from agent.retrieval.history.hunk_history import HunkHistory
from agent.retrieval.history.hunk_table import CountedHunks, HunkTable, LineFollower
from agent.retrieval.history.hunks import AddedHunk, HunkFilter

__all__ = [
    "MAX_HUNK_FILES",
    "AddedHunk",
    "CommitHistory",
    "CountedHunks",
    "HistoryTable",
    "HunkFilter",
    "HunkHistory",
    "HunkTable",
    "LineFollower",
    "NoHistory",
    "Renames",
    "history_path",
    "printable",
]
