"""Runs a project's tests before and after a patch, and reaches a verdict on the patch.

`SandboxValidator` is the pipeline's validator; `NullValidator` only checks the syntax. Read
`validator`, then `patch_validation` (the steps for one patch), `plan` (its runs and trees) and
`executor`. `choosing` selects test files, `runners` knows how projects run tests, `reports` reads
what runs leave behind, `judging` decides, and `inside` runs in the sandbox.
"""

from agent.verify.choosing import TestHints, find_test_hints
from agent.verify.executor import (
    ProjectSetup,
    SuiteExecutor,
    SuiteJob,
    Task,
    ValidationOptions,
)
from agent.verify.judging.compare import (
    IdList,
    collection_error,
    doubtful,
    executed,
    is_whole,
    read_known,
    suspicion,
)
from agent.verify.judging.outdated import placed_test
from agent.verify.judging.replays import Replays, ReplaySide
from agent.verify.judging.wording import (
    failure_texts,
    first_failure,
    how_it_ended,
    listed,
    number,
)
from agent.verify.path_rules import free_path, is_test_file, is_test_side, unsafe
from agent.verify.plan import import_roots
from agent.verify.reports import nothing_run
from agent.verify.runners import RUNNERS, STANDS_IN, runner_of
from agent.verify.runners.base import COMMAND, PYTHON, Suite, Tools
from agent.verify.steering import group_changes
from agent.verify.tools import candidates
from agent.verify.trees import known_secrets
from agent.verify.validator import NullValidator, SandboxValidator

__all__ = [
    "COMMAND",
    "PYTHON",
    "RUNNERS",
    "STANDS_IN",
    "IdList",
    "NullValidator",
    "ProjectSetup",
    "ReplaySide",
    "Replays",
    "SandboxValidator",
    "Suite",
    "SuiteExecutor",
    "SuiteJob",
    "Task",
    "TestHints",
    "Tools",
    "ValidationOptions",
    "candidates",
    "collection_error",
    "doubtful",
    "executed",
    "failure_texts",
    "find_test_hints",
    "first_failure",
    "free_path",
    "group_changes",
    "how_it_ended",
    "import_roots",
    "is_test_file",
    "is_test_side",
    "is_whole",
    "known_secrets",
    "listed",
    "nothing_run",
    "number",
    "placed_test",
    "read_known",
    "runner_of",
    "suspicion",
    "unsafe",
]
