"""A sandbox around a sandbox, for what has to happen before or after each run."""

from __future__ import annotations

import threading

from sandbox.types import Command, Probe, RunResult, Sandbox
from sandbox.workspace import Workspace


class WrappedSandbox:
    """As `inner` in everything. To be derived from."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """The inner one's."""
        return self.inner.name

    @property
    def foreign_root(self) -> bool:
        """The inner one's."""
        return self.inner.foreign_root

    def probe(self) -> Probe:
        """The inner one's."""
        return self.inner.probe()

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """As the inner one. Raises SandboxError."""
        return self.inner.run(command, workspace, cancel=cancel)
