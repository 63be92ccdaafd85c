"""Reads a git repository that may be hostile, without writing to it or running its code: snapshots
of a commit or the work tree, commits and blobs. Applies diffs, and commits a patch on a new branch.
"""

from agent.repository.applying import (
    CommitTree,
    Patched,
    PatchError,
    TreeFile,
    apply_patch,
    merged,
)
from agent.repository.committing import (
    CommitRefused,
    check_branch,
    check_branch_name,
    commit_changes,
    user_settings,
)
from agent.repository.git import GitRepository, merge_texts, open_repository
from agent.repository.git_process import EXECUTABLE_MODE
from agent.repository.languages import (
    TEXT,
    is_generated_path,
    is_test_path,
    is_vendored_path,
    language_of,
)
from agent.repository.scope import (
    checked_path,
    is_below,
    locate,
    narrowed,
    skipped_in_words,
    subtree,
)
from agent.repository.snapshot import changed_paths, take_snapshot
from agent.repository.text import decode, is_binary
from agent.repository.worktree import Kind, blob_id, read_files

__all__ = [
    "EXECUTABLE_MODE",
    "TEXT",
    "CommitRefused",
    "CommitTree",
    "GitRepository",
    "Kind",
    "PatchError",
    "Patched",
    "TreeFile",
    "apply_patch",
    "blob_id",
    "changed_paths",
    "check_branch",
    "check_branch_name",
    "checked_path",
    "commit_changes",
    "decode",
    "is_below",
    "is_binary",
    "is_generated_path",
    "is_test_path",
    "is_vendored_path",
    "language_of",
    "locate",
    "merge_texts",
    "merged",
    "narrowed",
    "open_repository",
    "read_files",
    "skipped_in_words",
    "subtree",
    "take_snapshot",
    "user_settings",
]
