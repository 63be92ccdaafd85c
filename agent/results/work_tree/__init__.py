"""Writes changed files into the user's work tree, all or none, and takes them back.

`apply_changes` writes the changes of a patch, and merges them with edits that the user made
meanwhile. `undo_changes` takes back what the last one wrote. `finish_interrupted` completes or
takes back what a killed process left half-written. All three keep a journal outside of the work
tree, which is also the information for undo.
"""

from agent.results.work_tree.changes import (
    WriteConflict,
    WriteOutcome,
    apply_changes,
    finish_interrupted,
    undo_changes,
)
from agent.results.work_tree.journal import FileOperations

__all__ = [
    "FileOperations",
    "WriteConflict",
    "WriteOutcome",
    "apply_changes",
    "finish_interrupted",
    "undo_changes",
]
