"""Reads a git repository that may be hostile, without writing to it or running its code.

`take_snapshot` returns an immutable view of a commit or of the work tree: files, bytes, skipped
paths, and how the work tree differs from the commit; `narrowed` and `subtree` show a part of it.
`open_repository` gives access to commits and blobs. `changed_paths` names the files with
uncommitted changes, `merge_texts` merges three texts, and `apply_patch` applies a diff.
`check_branch` and `commit_changes` commit a patch on a new branch. `decode` turns bytes into text,
and `language_of` and `is_test_path` classify paths.
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
from agent.repository.git_process import EXECUTABLE_MODE, SUBMODULE_MODE, SYMLINK_MODE
from agent.repository.languages import (
    TEXT,
    is_generated_path,
    is_test_path,
    is_vendored_path,
    language_of,
)
from agent.repository.scope import (
    Location,
    Selection,
    checked_path,
    is_below,
    locate,
    narrowed,
    skipped_in_words,
    subtree,
)
from agent.repository.snapshot import MAX_FILE_BYTES, changed_paths, take_snapshot
from agent.repository.text import decode, is_binary
from agent.repository.worktree import Kind, blob_id, read_files

__all__ = [
    "EXECUTABLE_MODE",
    "MAX_FILE_BYTES",
    "SUBMODULE_MODE",
    "SYMLINK_MODE",
    "TEXT",
    "CommitRefused",
    "CommitTree",
    "GitRepository",
    "Kind",
    "Location",
    "PatchError",
    "Patched",
    "Selection",
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
