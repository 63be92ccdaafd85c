"""Runs untrusted commands in private copies of a repository, isolated and within limits.

`make_sandbox` makes a backend (bubblewrap, a container, Landlock, or none) and `check_isolation`
tries whether it keeps its promises on this machine. `prepare_workspace` makes a private copy;
`Sandbox.run` runs a `Command` in it and returns a `RunResult` when everything that the command
started is dead. Nothing here knows of models, issues or patches.
"""

from sandbox.choose import check_isolation, explain_closed_paths, make_sandbox, other_backends
from sandbox.container_image import TESTBED, candidate_interpreters, prepare_products
from sandbox.files import SMALL_FILE_BYTES, make_private, open_parent, read_small_file
from sandbox.git import (
    GitDirectory,
    check_objects,
    check_references,
    find_git_directory,
    git_environment,
    git_options,
    objects_directory,
    read_control_file,
)
from sandbox.host import PATH, SYSTEM, find_interpreter, hide_programs
from sandbox.types import (
    Command,
    Ended,
    Limits,
    Probe,
    RunResult,
    Sandbox,
    SandboxError,
    WorkspaceError,
    WrappedSandbox,
)
from sandbox.workspace import (
    ChangedFiles,
    Workspace,
    empty_workspace,
    find_changed,
    prepare_workspace,
    stamp_files,
)

__all__ = [
    "PATH", "SMALL_FILE_BYTES", "SYSTEM", "TESTBED", "ChangedFiles", "Command", "Ended",
    "GitDirectory", "Limits", "Probe", "RunResult", "Sandbox", "SandboxError", "Workspace",
    "WorkspaceError", "WrappedSandbox", "candidate_interpreters", "check_isolation",
    "check_objects", "check_references", "empty_workspace", "explain_closed_paths", "find_changed",
    "find_git_directory", "find_interpreter", "git_environment", "git_options", "hide_programs",
    "make_private", "make_sandbox", "objects_directory", "open_parent", "other_backends",
    "prepare_products", "prepare_workspace", "read_control_file", "read_small_file", "stamp_files",
]  # fmt: skip
