"""Runs untrusted commands in private copies of a repository, isolated and within limits.

`make_sandbox` makes a backend (bubblewrap, a container, Landlock, or none) and `check_isolation`
tries whether it keeps its promises on this machine. `prepare_workspace` makes a private copy;
`Sandbox.run` runs a `Command` in it and returns a `RunResult` when everything that the command
started is dead. Nothing here knows of models, issues or patches.
"""

from sandbox.choose import check_isolation, explain_closed_paths, make_sandbox, other_backends
from sandbox.container.image import TESTBED, candidate_interpreters, prepare_products
from sandbox.environment import PATH
from sandbox.hardened_git import git_environment, git_options
from sandbox.host_programs import find_interpreter, hide_programs
from sandbox.mounts import SYSTEM
from sandbox.protocol import Sandbox, WrappedSandbox
from sandbox.small_files import SMALL_FILE_BYTES, read_small_file
from sandbox.types import Command, Ended, Limits, Probe, RunResult, SandboxError, WorkspaceError
from sandbox.workspace.changed_files import ChangedFiles, find_changed, stamp_files
from sandbox.workspace.clone import objects_directory
from sandbox.workspace.copy import Workspace, empty_workspace, prepare_workspace
from sandbox.workspace.git_directory import (
    GitDirectory,
    check_objects,
    check_references,
    find_git_directory,
    read_control_file,
)
from sandbox.workspace.nofollow import open_parent
from sandbox.workspace.private import make_private

__all__ = [
    "PATH",
    "SMALL_FILE_BYTES",
    "SYSTEM",
    "TESTBED",
    "ChangedFiles",
    "Command",
    "Ended",
    "GitDirectory",
    "Limits",
    "Probe",
    "RunResult",
    "Sandbox",
    "SandboxError",
    "Workspace",
    "WorkspaceError",
    "WrappedSandbox",
    "candidate_interpreters",
    "check_isolation",
    "check_objects",
    "check_references",
    "empty_workspace",
    "explain_closed_paths",
    "find_changed",
    "find_git_directory",
    "find_interpreter",
    "git_environment",
    "git_options",
    "hide_programs",
    "make_private",
    "make_sandbox",
    "objects_directory",
    "open_parent",
    "other_backends",
    "prepare_products",
    "prepare_workspace",
    "read_control_file",
    "read_small_file",
    "stamp_files",
]
