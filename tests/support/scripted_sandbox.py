"""A deterministic sandbox: answers from a script and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.types import Command, Ended, Probe, RunResult
from sandbox.workspace import Workspace

Answer = RunResult | Callable[[Command, Workspace], RunResult]


def exited(
    code: int = 0, stdout: bytes = b"", stderr: bytes = b"", report: bytes = b""
) -> RunResult:
    """The result of a command that ended by itself."""
    return RunResult(Ended.EXITED, code, stdout, stderr, 0.01, report)


@dataclass(frozen=True)
class Run:
    """One call: the command, where, and the files of the workspace at that moment."""

    command: Command
    mount: Path
    files: tuple[tuple[str, bytes], ...]


class ScriptedSandbox:
    """Gives `answers` in order, the last one again and again. `runs` holds the calls.

    An answer is a result, or a function that may look at the workspace and write into it.
    """

    def __init__(self, answers: Sequence[Answer] = (), *, isolated: bool = True) -> None:
        self._answers = list(answers) or [exited()]
        self._isolated = isolated
        self.runs: list[Run] = []

    @property
    def name(self) -> str:
        return "scripted"

    @property
    def foreign_root(self) -> bool:
        return False

    def probe(self) -> Probe:
        return Probe("scripted", available=True, isolated=self._isolated, guarantees={})

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        self.runs.append(Run(command, workspace.mount, _files(workspace.path)))
        if cancel is not None and cancel.is_set():
            return RunResult(Ended.CANCELLED, None, b"", b"", 0.0, detail="cancelled")
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer(command, workspace) if callable(answer) else answer


def _files(tree: Path) -> tuple[tuple[str, bytes], ...]:
    """Regular files outside .git, in path order."""
    paths = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    inside = [(path.relative_to(tree), path) for path in paths]
    return tuple((str(name), path.read_bytes()) for name, path in inside if name.parts[0] != ".git")
