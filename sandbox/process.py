"""The unsafe backend: limits, but no isolation. Only for those who asked for it by name."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
from pathlib import Path, PurePosixPath

from sandbox.environment import command_environment
from sandbox.nofollow import read_file
from sandbox.orphans import adopt_orphans, kill_everything
from sandbox.private import remove_tree
from sandbox.rlimits import explain, wrapper
from sandbox.supervise import Outcome, described, watch
from sandbox.types import Command, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

_REPORT = "report"

# Names the processes of one run, so that daemons among them are found.
_MARKER = "SANDBOX_RUN"


class ProcessSandbox:
    """Runs commands as this user, with the network and all files of this user within reach.

    The workspace is used where it lies (`workspace.path`); `mount` and `read_only` mean nothing.
    """

    @property
    def name(self) -> str:
        """As it is called in reports and settings."""
        return "process"

    @property
    def foreign_root(self) -> bool:
        """Never: commands see this machine's interpreters."""
        return False

    def probe(self) -> Probe:
        """Always available, never isolated."""
        return Probe(self.name, available=True, isolated=False, guarantees={})

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run it under limits only; see the protocol `Sandbox`."""
        scratch = workspace.scratch()
        try:
            (scratch / "tmp" / "home").mkdir(parents=True)
            outcome = _watched(command, workspace, scratch, cancel)
            report = read_file(scratch, _REPORT, command.limits.report) if command.report else b""
            return _result(command, outcome, report)
        finally:
            remove_tree(scratch)


def _watched(
    command: Command, workspace: Workspace, scratch: Path, cancel: threading.Event | None
) -> Outcome:
    adopt_orphans()
    marker = f"{_MARKER}={secrets.token_hex(16)}"
    process = _start(command, workspace, scratch, marker)

    def kill() -> None:
        """The process group first; then what left it, which has become our child."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
        kill_everything(process.pid, marker)

    return watch(process, command.limits, cancel, kill)


def _start(
    command: Command, workspace: Workspace, scratch: Path, marker: str
) -> subprocess.Popen[bytes]:
    if not command.argv:
        raise SandboxError("nothing to run: argv is empty")
    report = scratch / _REPORT if command.report else None
    home = scratch / "tmp" / "home"
    name, _, token = marker.partition("=")
    environment = {**command_environment(command, home=home, report=report), name: token}
    limits = wrapper(command.limits, shared_user=True)
    try:
        return subprocess.Popen(
            [*limits, *command.argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=_directory(workspace, command.cwd),
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise SandboxError(f"cannot start {limits[0]}: {error}") from error


def _directory(workspace: Workspace, cwd: str) -> Path:
    relative = PurePosixPath(cwd)
    if relative.is_absolute() or ".." in relative.parts:
        raise SandboxError(f"the working directory must lie in the workspace: {cwd!r}")
    return workspace.path / relative


def _result(command: Command, outcome: Outcome, report: bytes) -> RunResult:
    if outcome.cut is None:
        ended, code, detail = explain(outcome.returncode, outcome.seconds, command.limits)
    else:
        ended, code, detail = outcome.cut, None, described(outcome.cut, command.limits)
    return RunResult(ended, code, outcome.stdout, outcome.stderr, outcome.seconds, report, detail)
