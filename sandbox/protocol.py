"""The interface of a sandbox, and a base class for sandboxes that wrap another one."""

from __future__ import annotations

import threading
from typing import Protocol

from sandbox.types import Command, Probe, RunResult
from sandbox.workspace.copy import Workspace


class Sandbox(Protocol):
    """Runs untrusted commands: bwrap, container, landlock, process (unsafe), or a fake."""

    @property
    def name(self) -> str: ...
    @property
    def foreign_root(self) -> bool:
        """Whether commands see another file system than this machine's (a container image).

        Interpreters and tools must then be looked for inside, not on this machine.
        """
        ...

    def probe(self) -> Probe: ...
    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run a command to its end, a limit, or `cancel`. None of its processes survives the call.

        Raises SandboxError when the backend itself fails (not when the command does).
        """
        ...


class WrappedSandbox:
    """Behaves like `inner`. Derive from it to do something before or after each run."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def foreign_root(self) -> bool:
        return self.inner.foreign_root

    def probe(self) -> Probe:
        return self.inner.probe()

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        return self.inner.run(command, workspace, cancel=cancel)
