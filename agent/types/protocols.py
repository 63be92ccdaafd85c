"""The interfaces between the core and its parts, which `agent.wiring` passes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.types import (
        AppliedPatch,
        Chunk,
        CommandRun,
        Completion,
        OutdatedTest,
        Problem,
        Prompt,
        Ranking,
        ReproductionTest,
        SkippedFile,
        SourceFile,
        TestRun,
        ValidationReport,
    )
    from agent.types.events import Event


class Reporter(Protocol):
    """Takes one progress event. It must not raise, and may be called from worker threads."""

    def __call__(self, event: Event, /) -> None: ...


class Snapshot(Protocol):
    """An immutable view of a repository's text files at one moment.

    With `dirty` the work tree differed from `commit` (40 hex digits), and the files are its own.
    `scope` is the folder that retrieval and tests are limited to, "" for all.
    """

    @property
    def root(self) -> Path: ...
    @property
    def commit(self) -> str: ...
    @property
    def dirty(self) -> bool: ...
    @property
    def scope(self) -> str: ...
    @property
    def files(self) -> Mapping[str, SourceFile]:
        """Usable files by path, in path order."""

    @property
    def skipped(self) -> Sequence[SkippedFile]: ...

    def read(self, path: str) -> bytes:
        """The file's bytes. Raises KeyError for a path that is not in `files`."""

    def text(self, path: str) -> str:
        """The file decoded (BOM removed, undecodable bytes replaced) with `\\n` line ends."""

    def exists(self, path: str) -> bool:
        """Whether the repository has this path at all, usable or skipped."""

    def overlay(self) -> Mapping[str, bytes | None]:
        """The work tree's differences from `commit`, also in files that retrieval skips."""


class Chunker(Protocol):
    """Cuts one file. Pure: the same file gives the same chunks, in order of `start`."""

    def __call__(self, file: SourceFile, text: str, /) -> tuple[Chunk, ...]: ...
    def inner(self, file: SourceFile, text: str, /) -> tuple[Chunk, ...]:
        """Return the functions inside functions, named `outer > inner`, and the blocks of tests."""


class TokenCounter(Protocol):
    def count(self, text: str) -> int: ...
    def truncate(self, text: str, limit: int) -> str:
        """The longest prefix of `text` that has at most `limit` tokens."""


class Embedder(Protocol):
    """Turns texts into vectors: float32 (len(texts), d), each row L2-normalised.

    A text that could not be embedded gives a zero row. Raises ProviderError only when nothing at
    all can be embedded.
    """

    @property
    def name(self) -> str:
        """Identifies model and settings; part of every cache key."""

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "document"]
    ) -> NDArray[np.float32]: ...


class Retriever(Protocol):
    async def rank(self, problem: Problem, snapshot: Snapshot) -> Ranking: ...


class IntentFinder(Protocol):
    async def find(self, intents: Sequence[str], snapshot: Snapshot) -> str:
        """Return, for each intent, the code that matches it, as text for the model."""


class BackgroundFinder(Protocol):
    async def find(
        self, problem: Problem, snapshot: Snapshot, ranking: Ranking, tokens: int
    ) -> str:
        """Return text for the model of at most `tokens`, escaped as data; "" for nothing."""


class ChatModel(Protocol):
    @property
    def model(self) -> str: ...

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Send the prompt, with a JSON Schema where the server takes it. Raises ProviderError."""


class Validator(Protocol):
    async def check(self) -> None:
        """Try what the user named for the tests on the base. Raises ConfigurationError."""

    async def prepare(self) -> None:
        """Do the work that needs no patch, while the model thinks. Raises no `PatchshotError`."""

    async def validate(
        self,
        patch: AppliedPatch,
        test: ReproductionTest | None,
        earlier: Sequence[ReproductionTest] = (),
        outdated: Sequence[OutdatedTest] = (),
    ) -> ValidationReport:
        """Check a patch with the reply's test, and with those of `earlier` replies."""

    async def run_tests(self, patch: AppliedPatch | None, paths: Sequence[str]) -> TestRun:
        """Run the given test files on the patched tree (None: the base), for the iterative mode."""

    @property
    def why_no_commands(self) -> str:
        """Why `run_command` runs nothing; "" where a sandbox isolates the command."""

    async def run_command(self, patch: AppliedPatch | None, script: str) -> CommandRun:
        """Run a shell command on a fresh copy of the patched tree, without network."""


@dataclass(frozen=True, slots=True)
class Services:
    retriever: Retriever
    chunker: Chunker
    counter: TokenCounter
    chat: ChatModel
    validator: Validator
    reporter: Reporter
    finder: IntentFinder | None = None  # None: the iterative mode offers no action `find`
    escalation: ChatModel | None = None  # the model of repairs and steps; None: `chat`
    locator: ChatModel | None = None  # the model of the locating call; None: there is none
    background: Sequence[BackgroundFinder] = ()
