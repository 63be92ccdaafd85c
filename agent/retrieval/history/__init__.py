"""The changes that past commits made: messages, files and functions (`CommitHistory`), and added
lines (`HunkHistory`). Each commit is read from git once and stored in one cache file.
"""

from agent.retrieval.history.commits import MAX_HUNK_FILES as MAX_HUNK_FILES
from agent.retrieval.history.commits import CommitFacts as CommitFacts
from agent.retrieval.history.commits import Touch as Touch
from agent.retrieval.history.hunks import MAX_HUNKS as MAX_HUNKS
from agent.retrieval.history.hunks import AddedHunk as AddedHunk
from agent.retrieval.history.hunks import CommitHunks as CommitHunks
from agent.retrieval.history.hunks import HunkHistory as HunkHistory
from agent.retrieval.history.hunks import without_secrets as without_secrets
from agent.retrieval.history.table import CommitHistory as CommitHistory
from agent.retrieval.history.table import HistoryTable as HistoryTable
from agent.retrieval.history.table import NoHistory as NoHistory
from agent.retrieval.history.table import build_table as build_table
from agent.retrieval.history.table import history_path as history_path
from agent.retrieval.history.table import printable as printable
