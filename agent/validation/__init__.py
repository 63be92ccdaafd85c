"""Runs a project's tests before and after a patch, and reaches a verdict on the patch.

`SandboxValidator` is the pipeline's validator; `NullValidator` only checks the syntax. Read
`validator`, then `patch_validation` (the steps for one patch), `plan` (what runs on which trees),
`runs` and `executor`. `choosing` selects test files, `runners` knows how projects run tests,
`reports` reads what runs leave behind, `judging` decides, and `inside` runs in the sandbox.
"""

from agent.validation.choosing.hints import TestHints, find_test_hints
from agent.validation.executor import SuiteExecutor
from agent.validation.jobs import ProjectSetup, SuiteJob, Task, ValidationOptions
from agent.validation.judging.compare import (
    collection_error,
    doubtful,
    executed,
    is_whole,
    suspicion,
)
from agent.validation.judging.declared import placed_test
from agent.validation.judging.known import IdList, read_known
from agent.validation.judging.tricks import find_tricks
from agent.validation.judging.wording import (
    failure_texts,
    first_failure,
    how_it_ended,
    listed,
    number,
)
from agent.validation.path_rules import free_path, is_test_file, is_test_side, unsafe
from agent.validation.plan import group_changes, import_roots
from agent.validation.reports.run_results import nothing_run
from agent.validation.runners.base import PYTHON, Suite
from agent.validation.runners.commands import COMMAND
from agent.validation.runners.programs import Tools
from agent.validation.runners.registry import RUNNERS, STANDS_IN, runner_of
from agent.validation.tools import candidates
from agent.validation.trees import known_secrets
from agent.validation.validator import NullValidator, SandboxValidator

__all__ = [
    "COMMAND",
    "PYTHON",
    "RUNNERS",
    "STANDS_IN",
    "IdList",
    "NullValidator",
    "ProjectSetup",
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
    "find_tricks",
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
