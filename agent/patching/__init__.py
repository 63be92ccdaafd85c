"""From a model's reply to changed files: reading, applying, checking the syntax, and the diff.

`parse_reply` reads a reply in any shape that `agent.patching.readers` knows. `apply_proposal` finds
the place of each edit (`matching`), from an exact match to ever more lenient ones, and changes
files in memory only. `check_syntax` says which changed files no longer parse, and `unified_diff`
writes the result as git would.
"""

from agent.patching.applying import Adopted, adopt_files, apply_proposal
from agent.patching.diff import unified_diff
from agent.patching.file_tree import OverlayFiles
from agent.patching.parsing import can_continue, joined_reply, load_json, parse_reply, read_test
from agent.patching.paths import RefusedPath, check_path, is_allowed
from agent.patching.schema import (
    edit_as_json,
    outdated_tests,
    reply_schema,
    schema_of_test,
    wrong_tests,
)
from agent.patching.syntax import check_syntax, doubtful, parse_python, with_function
from agent.patching.tolerant_json import scan

__all__ = [
    "Adopted",
    "OverlayFiles",
    "RefusedPath",
    "adopt_files",
    "apply_proposal",
    "can_continue",
    "check_path",
    "check_syntax",
    "doubtful",
    "edit_as_json",
    "is_allowed",
    "joined_reply",
    "load_json",
    "outdated_tests",
    "parse_python",
    "parse_reply",
    "read_test",
    "reply_schema",
    "scan",
    "schema_of_test",
    "unified_diff",
    "with_function",
    "wrong_tests",
]
