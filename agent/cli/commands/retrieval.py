"""Functions that commands which rank code share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cli.commands.common import (
    load_settings,
    load_snapshot,
    make_redactor,
    own_file,
    reporting,
)
from agent.shared.terminal import say
from agent.types.events import Notice, StageFinished, StageStarted

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.types import Problem, Ranking
    from agent.types.events import Event
    from agent.types.protocols import Reporter, Snapshot


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """Arguments of these commands that are not settings."""

    problem: str | None
    repo: Path
    commit: str | None
    dirty: str
    json: bool
    quiet: bool
    explain: bool = False
    path: Path | None = None


@contextmanager
def warning(*, quiet: bool) -> Iterator[Reporter]:
    """Yield a reporter like `reporting`, but `quiet` silences progress only and not warnings."""
    with reporting(quiet=quiet) as reporter:
        yield _say_warnings if quiet else reporter


def _say_warnings(event: Event) -> None:
    if isinstance(event, Notice) and event.level == "warning":
        say(f"warning: {make_redactor()(event.message)}")


def open_settings(request: InspectRequest, flags: Mapping[str, Any]) -> Settings:
    """Return the settings of a request. Raises ConfigurationError."""
    from agent.wiring import retrieval_options

    settings = load_settings(flags, repository=request.repo)
    retrieval_options(settings)  # rejects unknown names before anything is read
    return settings


def open_code(
    request: InspectRequest,
    settings: Settings,
    reporter: Reporter,
    *,
    scope: Path | None = Path(),
) -> Snapshot:
    """Return the repository of a request, limited to a folder (see `load_snapshot`)."""
    own = (own_file(request.problem),)
    return load_snapshot(
        request.repo,
        request.commit,
        request.dirty,
        reporter,
        settings=settings,
        exclude=own,
        scope=scope,
    )


def rank_chunks(
    problem: Problem, snapshot: Snapshot, settings: Settings, reporter: Reporter
) -> Ranking:
    """Rank the chunks for a problem, and report which inputs the ranking could not use."""
    from agent.retrieval.ranking import no_words
    from agent.wiring import open_retriever

    async def rank() -> Ranking:
        async with open_retriever(settings, reporter) as retriever:
            return await retriever.rank(problem, snapshot)

    started = time.perf_counter()
    reporter(StageStarted("retrieve"))
    ranking = asyncio.run(rank())
    seconds = time.perf_counter() - started
    reporter(StageFinished("retrieve", seconds, f"{ranking.total_chunks:,} chunks"))
    for note in no_words(ranking):
        reporter(Notice(note, "warning"))
    return ranking
