"""Reads a git repository that may be hostile, without writing to it or running its code: snapshots
of a commit or the work tree, commits and blobs. Applies diffs, and commits a patch on a new branch.
"""

from agent.repository.applying import CommitTree as CommitTree
from agent.repository.applying import Patched as Patched
from agent.repository.applying import PatchError as PatchError
from agent.repository.applying import TreeFile as TreeFile
from agent.repository.applying import apply_patch as apply_patch
from agent.repository.applying import merged as merged
from agent.repository.committing import CommitRefused as CommitRefused
from agent.repository.committing import changes_between as changes_between
from agent.repository.committing import check_branch as check_branch
from agent.repository.committing import check_branch_name as check_branch_name
from agent.repository.committing import commit_changes as commit_changes
from agent.repository.committing import user_settings as user_settings
from agent.repository.git import GitRepository as GitRepository
from agent.repository.git import merge_texts as merge_texts
from agent.repository.git import open_repository as open_repository
from agent.repository.git_process import EXECUTABLE_MODE as EXECUTABLE_MODE
from agent.repository.languages import TEXT as TEXT
from agent.repository.languages import is_generated_path as is_generated_path
from agent.repository.languages import is_test_path as is_test_path
from agent.repository.languages import is_vendored_path as is_vendored_path
from agent.repository.languages import language_of as language_of
from agent.repository.scope import checked_path as checked_path
from agent.repository.scope import is_below as is_below
from agent.repository.scope import locate_repository as locate_repository
from agent.repository.scope import narrowed as narrowed
from agent.repository.scope import skipped_in_words as skipped_in_words
from agent.repository.scope import subtree as subtree
from agent.repository.snapshot import changed_paths as changed_paths
from agent.repository.snapshot import take_snapshot as take_snapshot
from agent.repository.text import decode as decode
from agent.repository.text import is_binary as is_binary
from agent.repository.worktree import Kind as Kind
from agent.repository.worktree import blob_id as blob_id
from agent.repository.worktree import read_files as read_files
