"""Functions that `agent search`, `agent context` and `agent index` share."""

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
from agent.errors import RepositoryError
from agent.shared.terminal import say
from agent.types.events import Notice, StageFinished, StageStarted

if TYPE_CHECKING:
    from agent.search import Label
    from agent.search.precomputed import SemanticSettings
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


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """Arguments about corpora other than code. `by_model`: the configured model writes intents.

    `agent`: limits the corpus of vectors.
    `symbols`: file that symbols with intents are written to; `symbols_from`: where they are read.
    """

    corpora: tuple[str, ...] = ()
    at_least: float | None = None
    expand: str = "off"
    by_model: bool = False
    agent: SemanticSettings | None = None
    symbols: Path | None = None
    symbols_from: Path | None = None
    fresh: bool = False
    forget: bool = False
    show: bool = False
    drop: str | None = None


CODE_ALONE = PoolRequest()
"""No corpus other than code."""


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


def beyond_code(settings: Settings, flags: Mapping[str, Any], asked: PoolRequest) -> bool:
    """Whether options or settings request anything besides the code."""
    given = (asked.corpora, settings.corpora, asked.expand != "off")
    return any(given) or _needs_others(flags, asked)


def _needs_others(flags: Mapping[str, Any], asked: PoolRequest) -> bool:
    """Whether an option was given that only applies to other corpora."""
    files = asked.symbols is not None or asked.symbols_from is not None
    return asked.by_model or asked.fresh or files or flags.get("store") is not None


def requested_corpora(
    settings: Settings, flags: Mapping[str, Any], asked: PoolRequest
) -> tuple[Label, ...]:
    """Return the requested corpora. Raises ConfigurationError.

    `--store` alone means all corpora except memory, which must be named.
    """
    from agent.search import Label
    from agent.wiring.search import read_labels

    named = [name.strip() for part in asked.corpora for name in part.split(",") if name.strip()]
    if named:
        return read_labels(named)
    if settings.corpora:
        return read_labels((Label.CODE.value, *settings.corpora))
    if _needs_others(flags, asked):
        return (Label.CODE, Label.HISTORY, Label.DOCS, Label.INTENT)
    return (Label.CODE,)


def open_snapshot(request: InspectRequest, settings: Settings, reporter: Reporter) -> Snapshot:
    """Return the repository's files, or those of a plain folder with a warning."""
    from agent.repository import locate
    from agent.search import read_folder

    try:
        locate(request.repo)
    except RepositoryError:
        if not request.repo.is_dir() or request.commit is not None:
            raise
        folder = read_folder(request.repo)
        for note in folder.notes:
            reporter(Notice(note, "warning"))
        return folder
    return open_code(request, settings, reporter)


def say_shallow(request: InspectRequest, labels: tuple[Label, ...], reporter: Reporter) -> None:
    """Warn that a shallow clone has only a part of the history."""
    from agent.repository import locate
    from agent.search import Label

    if Label.HISTORY not in labels:
        return
    try:
        shallow = (locate(request.repo).git_dir / "shallow").exists()
    except (RepositoryError, OSError):
        return
    if shallow:
        reporter(
            Notice(
                "[history] is not whole: this is a shallow clone (git fetch --unshallow)", "warning"
            )
        )
