"""The unsafe backend: limits, but no isolation. Only for those who asked for it by name."""

from __future__ import annotations

import subprocess
import threading

from sandbox.in_place import InPlace, Place, popen
from sandbox.rlimits import wrapper
from sandbox.types import Command, Probe, RunResult
from sandbox.workspace import Workspace


class ProcessSandbox:
    """Runs commands as this user, with the network and all files of this user within reach.

    The workspace is used where it lies (`workspace.path`); `mount` and `read_only` mean nothing.
    """

    def __init__(self) -> None:
        self._runs = InPlace()

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

        def start(place: Place) -> subprocess.Popen[bytes]:
            limits = wrapper(command.limits, shared_user=True, bounds=place.group.bounds)
            argv = [*place.group.entry(), *limits, *command.argv]
            return popen(argv, cwd=place.cwd, environment=place.environment)

        return self._runs.run(command, workspace, cancel, start)
