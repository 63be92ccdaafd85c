"""The folder with the results of an evaluation, which a later one continues.

FOLDER/instances/ID/result.json       the result (`Scored`), with the key of its inputs
FOLDER/instances/ID/report.json       the report of one instance in the shape of the harness
FOLDER/instances/ID/patch.diff        the prediction
FOLDER/instances/ID/test_output.txt   the output of the test runs
"""

from __future__ import annotations

import hashlib
import json
import shlex
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.datasets import folder_name
from agent.evaluation.patches.report import Scored
from agent.shared.files import replace_file
from sandbox import Command, RunResult, Sandbox, Workspace, WrappedSandbox

RESULT, REPORT, PATCH, LOG = "result.json", "report.json", "patch.diff", "test_output.txt"

# A new number makes all earlier results invalid.
_FORMAT = 1


def key_of(parts: Mapping[str, Any]) -> str:
    """Return a key of everything that a result depends on: the SHA-256 of `parts`, hex."""
    text = json.dumps({**parts, "format": _FORMAT}, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ResultFolder:
    """The results of one instance. Writing creates the folder. Methods raise OSError."""

    def __init__(self, folder: Path, instance_id: str, *, fresh: bool = False) -> None:
        """With `fresh`, earlier results are ignored."""
        self._folder = folder / "instances" / folder_name(instance_id)
        self._fresh = fresh

    def read(self, key: str) -> Scored | None:
        """Return the result of an earlier run with this key, None if there is none."""
        if self._fresh:
            return None
        try:
            found = Scored.model_validate_json((self._folder / RESULT).read_bytes())
        except (OSError, ValidationError):
            return None
        return found if found.key == key else None

    def open_log(self) -> Path:
        """Create an empty log, and return its path."""
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / LOG
        log.write_bytes(b"")
        return log

    def write(self, scored: Scored, patch: str) -> None:
        """Write a result, `result.json` last."""
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / PATCH, [patch.encode("utf-8", "surrogatepass")])
        report = {scored.instance_id: scored.of_harness()}
        replace_file(self._folder / REPORT, [_json(report)])
        replace_file(self._folder / RESULT, [_json(scored.model_dump(mode="json"))])


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode("ascii")


class RecordingSandbox(WrappedSandbox):
    """Runs commands in `inner`, and appends command lines and output of test runs to `log`."""

    def __init__(self, inner: Sandbox, log: Path) -> None:
        super().__init__(inner)
        self._log = log
        self._lock = threading.Lock()

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run, then write the log. Raises SandboxError, and OSError if the disk is full."""
        result = self.inner.run(command, workspace, cancel=cancel)
        if command.report:
            self._write(command, result)
        return result

    def say(self, text: str) -> None:
        """Append a line that is not output of a test."""
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
