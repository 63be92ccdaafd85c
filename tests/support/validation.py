"""Patches, runs and a scripted sandbox for tests of the validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from agent.types import AppliedPatch, FileChange, Outcome, TestRun
from sandbox.types import Command, Ended, Probe, RunResult
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


class ScriptedSandbox:
    """Answers every command with what a function of the command and its tree returns."""

    def __init__(self, answer: Callable[[Command, Path], RunResult]) -> None:
        self._answer = answer
        self.commands: list[Command] = []

    @property
    def name(self) -> str:
        return "scripted"

    def probe(self) -> Probe:
        return Probe("scripted", available=True, isolated=True, guarantees={})

    def run(self, command: Command, workspace: Workspace, *, cancel: object = None) -> RunResult:
        self.commands.append(command)
        return self._answer(command, workspace.path)


def result_of(
    stdout: bytes = b"",
    *,
    report: bytes = b"",
    exit_code: int | None = 0,
    ended: Ended = Ended.EXITED,
) -> RunResult:
    return RunResult(ended, exit_code, stdout, b"", 0.1, report)
