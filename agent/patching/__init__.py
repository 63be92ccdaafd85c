"""From a model's reply to changed files: reading, applying, checking the syntax, and the diff.
`parse_reply` reads a reply in any shape that `agent.patching.readers` knows. `apply_proposal` finds
the place of each edit (`matching`), from an exact match to ever more lenient ones, and changes
files in memory only. `check_syntax` says which changed files no longer parse, and `unified_diff`
writes the result as git would.
"""

from agent.patching.applying import adopt_files as adopt_files
from agent.patching.applying import apply_proposal as apply_proposal
from agent.patching.diff import unified_diff as unified_diff
from agent.patching.file_tree import OverlayFiles as OverlayFiles
from agent.patching.parsing import can_continue as can_continue
from agent.patching.parsing import joined_reply as joined_reply
from agent.patching.parsing import load_json as load_json
from agent.patching.parsing import parse_reply as parse_reply
from agent.patching.parsing import read_test as read_test
from agent.patching.paths import RefusedPath as RefusedPath
from agent.patching.paths import check_path as check_path
from agent.patching.paths import is_allowed as is_allowed
from agent.patching.schema import edit_as_json as edit_as_json
from agent.patching.schema import outdated_as_json as outdated_as_json
from agent.patching.schema import outdated_tests as outdated_tests
from agent.patching.schema import reply_schema as reply_schema
from agent.patching.schema import schema_of_test as schema_of_test
from agent.patching.schema import wrong_tests as wrong_tests
from agent.patching.syntax import check_syntax as check_syntax
from agent.patching.syntax import parse_python as parse_python
from agent.patching.tolerant_json import scan as scan
