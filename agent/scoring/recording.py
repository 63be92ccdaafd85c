"""A sandbox that writes down what its test runs print: the log of an instance."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path

from sandbox.types import Command, RunResult, Sandbox
from sandbox.workspace import Workspace
from sandbox.wrapping import WrappedSandbox


class RecordingSandbox(WrappedSandbox):
    """Runs in `inner`; appends command lines and outputs of runs with a report to `log`."""

    def __init__(self, inner: Sandbox, log: Path) -> None:
        super().__init__(inner)
        self._log = log
        self._lock = threading.Lock()

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run, then write. Raises SandboxError as the inner one, and OSError for a full disk."""
        result = self.inner.run(command, workspace, cancel=cancel)
        if command.report:
            self._write(command, result)
        return result

    def say(self, text: str) -> None:
        """A line of our own."""
        self._append(f"==> {text}\n".encode("utf-8", "replace"))

    def _write(self, command: Command, result: RunResult) -> None:
        ended = result.detail or f"exit code {result.exit_code}"
        head = f"$ {shlex.join(command.argv)}\n".encode("utf-8", "replace")
        tail = f"\n==> {result.ended} ({ended}) after {result.seconds:.1f} s\n\n".encode()
        error = b"\n--- stderr ---\n" + result.stderr if result.stderr.strip() else b""
        self._append(head + result.stdout + error + tail)

    def _append(self, data: bytes) -> None:
        with self._lock, self._log.open("ab") as file:
            file.write(data)
