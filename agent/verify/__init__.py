"""Runs a project's tests before and after a patch, and reaches a verdict on the patch.

`SandboxValidator` is the pipeline's validator; `NullValidator` only checks the syntax. Read
`validator`, then `patch_validation` (the steps for one patch), `plan` (its runs and trees) and
`executor`. `choosing` selects test files, `runners` knows how projects run tests, `reports` reads
what runs leave behind, `judging` decides, and `inside` runs in the sandbox.
"""

from agent.verify.choosing import TestHints as TestHints
from agent.verify.choosing import find_broken_module as find_broken_module
from agent.verify.choosing import find_test_hints as find_test_hints
from agent.verify.executor import ProjectSetup as ProjectSetup
from agent.verify.executor import SuiteExecutor as SuiteExecutor
from agent.verify.executor import SuiteJob as SuiteJob
from agent.verify.executor import Task as Task
from agent.verify.executor import ValidationOptions as ValidationOptions
from agent.verify.judging.compare import IdList as IdList
from agent.verify.judging.compare import collection_error as collection_error
from agent.verify.judging.compare import doubtful as doubtful
from agent.verify.judging.compare import executed as executed
from agent.verify.judging.compare import is_whole as is_whole
from agent.verify.judging.compare import read_known as read_known
from agent.verify.judging.compare import suspicion as suspicion
from agent.verify.judging.replays import Replays as Replays
from agent.verify.judging.reproduction import why_not_red as why_not_red
from agent.verify.judging.wording import failure_texts as failure_texts
from agent.verify.judging.wording import first_failure as first_failure
from agent.verify.judging.wording import how_it_ended as how_it_ended
from agent.verify.judging.wording import number as number
from agent.verify.patch_validation import missing_tool as missing_tool
from agent.verify.path_rules import is_test_file as is_test_file
from agent.verify.path_rules import is_test_side as is_test_side
from agent.verify.path_rules import new_test_file as new_test_file
from agent.verify.plan import NOT_RUN as NOT_RUN
from agent.verify.plan import import_roots as import_roots
from agent.verify.reports import nothing_run as nothing_run
from agent.verify.runners import RUNNERS as RUNNERS
from agent.verify.runners import runner_of as runner_of
from agent.verify.runners.base import COMMAND as COMMAND
from agent.verify.runners.base import Suite as Suite
from agent.verify.runners.base import Tools as Tools
from agent.verify.steering import group_changes as group_changes
from agent.verify.tools import candidates as candidates
from agent.verify.trees import known_secrets as known_secrets
from agent.verify.validator import NullValidator as NullValidator
from agent.verify.validator import SandboxValidator as SandboxValidator
