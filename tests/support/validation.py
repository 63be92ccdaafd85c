"""Patches, runs and a scripted sandbox for tests of the validation."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.repository.snapshot import take_snapshot
from agent.types import (
    AppliedPatch,
    FileChange,
    Outcome,
    OutdatedTest,
    Problem,
    ReproductionTest,
    TestRun,
    ValidationReport,
)
from agent.verify import reports
from agent.verify.runners.base import INSIDE
from agent.verify.validator import SandboxValidator, ValidationOptions
from sandbox.bwrap import BwrapSandbox
from sandbox.types import Command, Ended, Probe, RunResult, Sandbox
from sandbox.workspace import Workspace


def patch_of(*changes: FileChange) -> AppliedPatch:
    return AppliedPatch(changes, b"", ())


def edit(path: str, before: str | None, after: str | None) -> FileChange:
    return FileChange(
        path,
        None if before is None else before.encode(),
        None if after is None else after.encode(),
    )


def run_of(
    outcomes: Mapping[str, str],
    *,
    ended: str = "exited",
    failures: Mapping[str, str] | None = None,
    exit_code: int | None = 0,
    output: str = "",
    seconds: float = 1.0,
) -> TestRun:
    return TestRun(
        command=("pytest",),
        outcomes={test: Outcome(value) for test, value in outcomes.items()},
        exit_code=exit_code,
        seconds=seconds,
        ended=ended,
        output_tail=output,
        failures=dict(failures or {}),
    )


def validated(
    root: Path,
    patch: AppliedPatch,
    test: ReproductionTest | None = None,
    *,
    problem: str = "add() subtracts",
    outdated: Sequence[OutdatedTest] = (),
    sandbox: Sandbox | None = None,
    **options: Any,
) -> ValidationReport:
    """Validate a patch of a repository, under bubblewrap unless a `sandbox` is given."""
    given = ValidationOptions(**{"timeout": 60.0, **options})
    snapshot, backend = take_snapshot(root), sandbox or BwrapSandbox()

    async def run() -> ValidationReport:
        async with SandboxValidator(snapshot, Problem(problem, ""), backend, given) as validator:
            return await validator.validate(patch, test, (), outdated)

    return asyncio.run(run())


class ScriptedSandbox:
    """Answers every command with what a function of the command and its tree returns."""

    def __init__(
        self, answer: Callable[[Command, Path], RunResult], name: str = "scripted"
    ) -> None:
        self._answer = answer
        self._name = name
        self.commands: list[Command] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def foreign_root(self) -> bool:
        return False

    def probe(self) -> Probe:
        return Probe("scripted", available=True, isolated=True, guarantees={})

    def run(self, command: Command, workspace: Workspace, *, cancel: object = None) -> RunResult:
        if "PATCHSHOT_REPLAY" in command.environment:  # nothing is known of plain code
            return RunResult(Ended.EXITED, 0, b"", b"", 0.0)
        self.commands.append(command)
        return self._answer(command, workspace.path)


def plugin_in(command: Command, tree: Path) -> Callable[[bytes], bytes]:
    """Starts as our plugin does: takes the key away. Returns what signs a report as it would."""
    if reports.KEY_VARIABLE not in command.environment:
        return lambda report: report
    key = (tree / reports.KEY_FILE).read_bytes()
    (tree / reports.KEY_FILE).unlink()
    return lambda report: signed(report.splitlines(), key)


def signed(lines: list[bytes], key: bytes) -> bytes:
    """Sign lines as the plugin does (see `agent.verify.reports`)."""
    written, last = [], b""
    for line in lines:
        last = hmac.new(key, last + line, hashlib.sha256).hexdigest()[:16].encode()
        written.append(line + b"\t" + last + b"\n")
    return b"".join(written)


def run_plugin(folder: Path, *paths: str) -> RunResult:
    """Run pytest with our plugin and without a sandbox, and remove the signatures."""
    report, key = folder / "report", reports.new_key()
    (folder / reports.KEY_FILE).write_bytes(key)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{folder}:{INSIDE}",
        "SANDBOX_REPORT": str(report),
        reports.KEY_VARIABLE: str(folder / reports.KEY_FILE),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    options = ("-p", "patchshot_pytest", "--continue-on-collection-errors", f"--rootdir={folder}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *paths],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=60,
    )
    written = reports.verified(report.read_bytes() if report.exists() else b"", key)
    return RunResult(Ended.EXITED, done.returncode, done.stdout, done.stderr, 0.1, written)


def result_of(
    stdout: bytes = b"",
    *,
    report: bytes = b"",
    exit_code: int | None = 0,
    ended: Ended = Ended.EXITED,
) -> RunResult:
    return RunResult(ended, exit_code, stdout, b"", 0.1, report)
