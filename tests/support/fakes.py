"""Deterministic stand-ins for `agent.types.protocols`, without files or processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.repository.languages import language_of
from agent.repository.worktree import blob_id
from agent.types import (
    AppliedPatch,
    Chunk,
    ChunkKind,
    CommandRun,
    Outcome,
    OutdatedTest,
    Problem,
    Ranking,
    Reason,
    ReproductionTest,
    ScoredChunk,
    ScoredFile,
    SkippedFile,
    SourceFile,
    TestRun,
    ValidationReport,
    Verdict,
)
from agent.types.events import Event


class MemorySnapshot:
    """A snapshot of files in memory."""

    def __init__(
        self, files: Mapping[str, str | bytes], *, dirty: bool = False, scope: str = ""
    ) -> None:
        contents = {p: t.encode() if isinstance(t, str) else t for p, t in files.items()}
        self._contents = dict(sorted(contents.items()))
        self.root = Path("/nowhere")
        self.commit = "1" * 40
        self.dirty = dirty
        self.scope = scope
        self.files = {
            path: SourceFile(path, blob_id(data), len(data), language_of(path))
            for path, data in self._contents.items()
        }
        self.skipped: Sequence[SkippedFile] = ()

    def read(self, path: str) -> bytes:
        return self._contents[path]

    def text(self, path: str) -> str:
        return self._contents[path].decode("utf-8", "replace").replace("\r\n", "\n")

    def exists(self, path: str) -> bool:
        return path in self._contents

    def overlay(self) -> Mapping[str, bytes | None]:
        return {}


@dataclass
class WholeFileRetriever:
    """Ranks every file as one chunk, in path order, and records what it was asked."""

    asked: list[str] = field(default_factory=list)

    async def rank(self, problem: Problem, snapshot: MemorySnapshot) -> Ranking:
        self.asked.append(problem.text)
        chunks = tuple(
            ScoredChunk(whole_file(file, snapshot), 1.0 - i / 100, (Reason("lexical", 1.0),))
            for i, file in enumerate(snapshot.files.values())
        )
        files = tuple(ScoredFile(c.chunk.path, c.score) for c in chunks)
        return Ranking(chunks, files, len(chunks))


def whole_file(file: SourceFile, snapshot: MemorySnapshot) -> Chunk:
    """One chunk that holds a whole file."""
    text = snapshot.text(file.path).removesuffix("\n")
    return Chunk(
        file.path,
        1,
        text.count("\n") + 1,
        "",
        ChunkKind.WINDOW,
        text,
        file.blob,
        file.language,
    )


def report(verdict: Verdict, reason: str = "", failing: Sequence[str] = ()) -> ValidationReport:
    """A validation report with a verdict."""
    return ValidationReport(verdict, reason or verdict.value, "fake", newly_failing=tuple(failing))


@dataclass
class ScriptedValidator:
    """Gives the reports of a list, the last one again and again; records what it was shown."""

    reports: list[ValidationReport]
    seen: list[tuple[AppliedPatch, ReproductionTest | None]] = field(default_factory=list)
    runs: list[tuple[AppliedPatch | None, tuple[str, ...]]] = field(default_factory=list)
    hang: bool = False
    earlier: list[tuple[ReproductionTest, ...]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    command_run: CommandRun = field(default_factory=lambda: CommandRun("done", 0))
    outdated: list[tuple[OutdatedTest, ...]] = field(default_factory=list)

    async def validate(
        self,
        patch: AppliedPatch,
        test: ReproductionTest | None,
        earlier: Sequence[ReproductionTest] = (),
        outdated: Sequence[OutdatedTest] = (),
    ) -> ValidationReport:
        self.outdated.append(tuple(outdated))
        self.seen.append((patch, test))
        self.earlier.append(tuple(earlier))
        if self.hang:
            await asyncio.sleep(3600)
        return self.reports[min(len(self.seen), len(self.reports)) - 1]

    async def check(self) -> None:
        """Nothing is named."""

    async def prepare(self) -> None:
        """Nothing to prepare."""

    async def run_tests(self, patch: AppliedPatch | None, paths: Sequence[str]) -> TestRun:
        self.runs.append((patch, tuple(paths)))
        return TestRun(("pytest",), {"t::a": Outcome.PASSED}, 0, 0.1, "exited", "1 passed")

    @property
    def why_no_commands(self) -> str:
        return ""

    async def run_command(self, patch: AppliedPatch | None, script: str) -> CommandRun:
        self.scripts.append(script)
        return self.command_run


@dataclass
class EventLog:
    """A reporter that keeps what it is told."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event, /) -> None:
        self.events.append(event)
