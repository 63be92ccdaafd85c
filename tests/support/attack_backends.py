"""Backends as the attack suite uses them, and the same command without any."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.types import Command, Ended, Limits, RunResult, Sandbox
from sandbox.workspace import empty_workspace
from tests.support.sandbox_driver import MOUNT
from tests.support.sandboxes import SYSTEM_PYTHON, Runner

# An attack whose control takes longer is no attack.
_CONTROL_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class AttackedBackend:
    """One column of the table. Exactly one of `sandbox` (in this process) and `runner` is set."""

    name: str
    sandbox: Sandbox | None = None
    runner: Runner | None = None

    def run(
        self,
        script: str,
        arguments: tuple[str, ...],
        *,
        limits: Mapping[str, float],
        report: bool,
        parent: Path,
    ) -> RunResult:
        """Run Python code in a fresh workspace, below `parent` where that can be chosen."""
        argv = (SYSTEM_PYTHON, "-I", "-c", script, *arguments)
        environment = {"INSIDE": "1"}
        given = {"wall_seconds": 20.0, **limits}
        if self.sandbox is None:
            assert self.runner is not None
            given["report_size"] = given.pop("report", Limits().report)
            return self.runner(*argv, environment=environment, report=report, **given)  # type: ignore[arg-type]
        command = Command(argv, environment, limits=Limits(**given), report=report)  # type: ignore[arg-type]
        with empty_workspace(mount=MOUNT, parent=parent) as workspace:
            return self.sandbox.run(command, workspace)


def plainly(script: str, arguments: tuple[str, ...], folder: Path) -> RunResult:
    """The same code without a sandbox: the control that shows that an attack works."""
    started = time.monotonic()
    done = subprocess.run(
        [SYSTEM_PYTHON, "-I", "-c", script, *arguments],
        cwd=folder,
        env={**os.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        close_fds=False,
        timeout=_CONTROL_SECONDS,
        check=False,
    )
    seconds = time.monotonic() - started
    return RunResult(Ended.EXITED, done.returncode, done.stdout, done.stderr, seconds)
