"""Runs untrusted commands in private copies of a repository, isolated and within limits.

`make_sandbox` makes a backend, `check_isolation` tries it, `prepare_workspace` makes a private
copy, and `Sandbox.run` returns when everything that a `Command` started is dead.
"""

from sandbox.choose import check_isolation as check_isolation
from sandbox.choose import make_sandbox as make_sandbox
from sandbox.choose import other_backends as other_backends
from sandbox.container_image import TESTBED as TESTBED
from sandbox.container_image import candidate_interpreters as candidate_interpreters
from sandbox.container_image import prepare_products as prepare_products
from sandbox.files import SMALL_FILE_BYTES as SMALL_FILE_BYTES
from sandbox.files import make_private as make_private
from sandbox.files import open_parent as open_parent
from sandbox.files import open_regular as open_regular
from sandbox.files import read_small_file as read_small_file
from sandbox.files import remove_tree as remove_tree
from sandbox.git import GitDirectory as GitDirectory
from sandbox.git import check_objects as check_objects
from sandbox.git import check_references as check_references
from sandbox.git import find_git_directory as find_git_directory
from sandbox.git import git_environment as git_environment
from sandbox.git import git_options as git_options
from sandbox.git import objects_directory as objects_directory
from sandbox.git import read_control_file as read_control_file
from sandbox.host import PATH as PATH
from sandbox.host import SYSTEM as SYSTEM
from sandbox.host import find_interpreter as find_interpreter
from sandbox.host import hide_programs as hide_programs
from sandbox.host import run_program as run_program
from sandbox.types import Command as Command
from sandbox.types import Ended as Ended
from sandbox.types import Limits as Limits
from sandbox.types import Probe as Probe
from sandbox.types import RunResult as RunResult
from sandbox.types import Sandbox as Sandbox
from sandbox.types import SandboxError as SandboxError
from sandbox.types import WorkspaceError as WorkspaceError
from sandbox.workspace import ChangedFiles as ChangedFiles
from sandbox.workspace import Workspace as Workspace
from sandbox.workspace import empty_workspace as empty_workspace
from sandbox.workspace import find_changed as find_changed
from sandbox.workspace import prepare_workspace as prepare_workspace
from sandbox.workspace import stamp_files as stamp_files
