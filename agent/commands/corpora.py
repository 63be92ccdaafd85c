"""`agent search` and `agent index` over several corpora: what they print, and nothing more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agent.commands.common import load_snapshot, own_file, print_value, say, write_stdout
from agent.commands.hits import finding_as_json, render_findings, terminal_width
from agent.commands.indexed import (
    collections_in_words,
    counted,
    index_as_json,
    index_in_words,
    model_of,
)
from agent.commands.keeping import refuse_unkept
from agent.commands.warning import warning
from agent.corpora.passages import Findings, Label
from agent.errors import ConfigurationError, RepositoryError
from agent.events import Notice, StageFinished, StageStarted

if TYPE_CHECKING:
    from agent.commands.requests import InspectRequest, PoolRequest
    from agent.corpora.filling import CorpusReport
    from agent.corpora.intent_writing import Written
    from agent.corpora.pool import Pool
    from agent.protocols import Reporter, Snapshot
    from agent.retrieval.index import IndexSummary
    from agent.settings import Settings
    from agent.types import Problem

_BY_DEFAULT = (Label.CODE, Label.HISTORY, Label.DOCS, Label.INTENT)
"""What `--store` alone means; memory is asked for by name."""

_STORE_KEEPS = "a store keeps its entries until `agent index --corpus memory --fresh`"

CANDIDATES = 40
"""Symbols of a query that a model writes intents for: what a person looks through."""


def concerns(request: InspectRequest, flags: Mapping[str, Any], asked: PoolRequest) -> bool:
    """Whether anything beyond the code is asked for, by options or by settings."""
    from agent.settings import load

    given = (asked.corpora, asked.at_least is not None, asked.expand != "off")
    if any(given) or _beyond_code(flags, asked):
        return True
    return bool(load(flags, repository=request.repo).corpora)


def _beyond_code(flags: Mapping[str, Any], asked: PoolRequest) -> bool:
    """Whether an option makes no sense for code alone."""
    return asked.by_model or asked.fresh or flags.get("store") is not None


def search(
    request: InspectRequest,
    problem: Problem,
    limit: int,
    flags: Mapping[str, Any],
    asked: PoolRequest,
) -> int:
    """Print the findings of several corpora as a labelled table or JSON."""
    settings, labels = _settings(request, flags, asked)
    with warning(quiet=request.quiet) as reporter:
        if asked.expand != "off" and set(labels) == {Label.CODE}:
            reporter(Notice("--expand does nothing for code alone: name a --corpus", "warning"))
        snapshot = open_snapshot(request, reporter)
        _say_shallow(request, labels, reporter)
        started = time.perf_counter()
        reporter(StageStarted("retrieve"))
        work = _search(problem, limit, settings, snapshot, labels, asked, reporter)
        findings = asyncio.run(work)
        seconds = time.perf_counter() - started
        total = sum(findings.searched.values())
        reporter(StageFinished("retrieve", seconds, f"{total:,} passages"))
        for note in findings.notes:
            reporter(Notice(note, "warning"))
    if request.json:
        print_value(
            {
                "commit": snapshot.commit,
                "dirty": snapshot.dirty,
                "searched": {label.value: n for label, n in findings.searched.items()},
                "notes": list(findings.notes),
                "results": [finding_as_json(finding) for finding in findings.hits],
            }
        )
    else:
        table = render_findings(findings.hits, explain=request.explain, width=terminal_width())
        write_stdout(table.encode("utf-8", "replace"))
    if not findings.hits:
        lower = "" if asked.at_least is None else ", or a lower --at-least"
        say(f"agent: nothing matches; try other words or another --corpus{lower}")
    return 0


def index(request: InspectRequest, flags: Mapping[str, Any], asked: PoolRequest) -> int:
    """Fill the caches and the store; print what each corpus came to."""
    settings, labels = _settings(request, flags, asked)
    refuse_unkept(settings)
    with warning(quiet=request.quiet) as reporter:
        snapshot = open_snapshot(request, reporter)
        _say_shallow(request, labels, reporter)
        started = time.perf_counter()
        code = _fill_code(settings, snapshot, reporter)
        work = _fill(settings, snapshot, labels, asked, reporter)
        reports, written, url = asyncio.run(work)
        seconds = time.perf_counter() - started
    if request.json:
        print_value(index_as_json(snapshot, code, reports, written, url, seconds))
    else:
        write_stdout(
            index_in_words(code, reports, written, url, seconds).encode("utf-8", "replace")
        )
    if written is not None and written.error is not None:
        say(f"agent: {written.error}; what was written is kept: the same command goes on from here")
        return written.error.status.exit_code
    return 0


def manage(request: InspectRequest, flags: Mapping[str, Any], asked: PoolRequest) -> int:
    """`--list`, `--drop NAME`, `--forget`."""
    from agent.services.corpora import StoreUse, memory_of, open_vector_store
    from agent.settings import load

    _refuse_together(asked)
    settings = load(flags, repository=request.repo)
    with warning(quiet=request.quiet) as reporter:
        if asked.forget:
            count = memory_of(settings, open_snapshot(request, reporter)).forget()
            said = counted(count, "patch", "patches")
            write_stdout(f"forgot {said} of this project; {_STORE_KEEPS}\n".encode())
            return 0
        with open_vector_store(settings, reporter, StoreUse.MANAGE) as store:
            known = store.collections()
            if asked.drop is not None:
                if asked.drop not in {info.name for info in known}:
                    raise ConfigurationError(
                        f"--drop {asked.drop}: no such collection in {store.url} (see --list)"
                    )
                store.drop(asked.drop)
                write_stdout(f"dropped {asked.drop} of {store.url}\n".encode())
                return 0
            url = store.url
    if request.json:
        print_value(
            {
                "store": url,
                "collections": [asdict(info) | {"model": model_of(info)} for info in known],
            }
        )
    else:
        write_stdout(collections_in_words(url, known).encode())
    return 0


def _refuse_together(asked: PoolRequest) -> None:
    """Raise ConfigurationError for two options that each make the command something else."""
    given = {
        "--list": asked.show,
        "--drop": asked.drop is not None,
        "--forget": asked.forget,
        "--fresh": asked.fresh,
    }
    named = [name for name, there in given.items() if there]
    if len(named) > 1:
        raise ConfigurationError(f"{' and '.join(named)} do not go together; give one of them")


def _say_shallow(request: InspectRequest, labels: tuple[Label, ...], reporter: Reporter) -> None:
    """A shallow clone has part of the history only."""
    from agent.repository.location import locate

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


def open_snapshot(request: InspectRequest, reporter: Reporter) -> Snapshot:
    """The repository's files; those of a plain folder where it is no repository, which is said."""
    from agent.corpora.folder import read_folder
    from agent.repository.location import locate

    try:
        locate(request.repo)
    except RepositoryError:
        if not request.repo.is_dir() or request.commit is not None:
            raise
        folder = read_folder(request.repo)
        for note in folder.notes:
            reporter(Notice(note, "warning"))
        return folder
    own = (own_file(request.problem),)
    return load_snapshot(request.repo, request.commit, request.dirty, reporter, exclude=own)


def _settings(
    request: InspectRequest, flags: Mapping[str, Any], asked: PoolRequest
) -> tuple[Settings, tuple[Label, ...]]:
    """The settings, and the corpora that are meant. Raises ConfigurationError."""
    from agent.services.evidence import read_labels
    from agent.services.retrieval import retrieval_options
    from agent.settings import load

    settings = load(flags, repository=request.repo)
    retrieval_options(settings)
    named = [name.strip() for part in asked.corpora for name in part.split(",") if name.strip()]
    if named:
        return settings, read_labels(named)
    if settings.corpora:
        return settings, read_labels((Label.CODE.value, *settings.corpora))
    return settings, _BY_DEFAULT if _beyond_code(flags, asked) else (Label.CODE,)


async def _search(
    problem: Problem,
    limit: int,
    settings: Settings,
    snapshot: Snapshot,
    labels: tuple[Label, ...],
    asked: PoolRequest,
    reporter: Reporter,
) -> Findings:
    from agent.services.corpora import open_pool

    llm = asked.expand == "llm"
    async with open_pool(settings, snapshot, reporter, labels, keywords=llm) as pool:
        if asked.by_model and Label.INTENT in labels:
            await _write_candidates(problem, settings, snapshot, pool, reporter)
        return await pool.search(
            problem,
            top_k=limit,
            at_least=asked.at_least or 0.0,
            expand="llm" if llm else "project" if asked.expand == "project" else "off",
        )


async def _write_candidates(
    problem: Problem, settings: Settings, snapshot: Snapshot, pool: Pool, reporter: Reporter
) -> None:
    """Have intents written for the symbols that a query finds without them."""
    from agent.corpora.symbols import read_symbols
    from agent.services.corpora import open_intent_writer

    others = [label for label in pool.corpora if label in (Label.CODE, Label.INTENT)]
    found = await pool.search(problem, corpora=others, top_k=CANDIDATES)
    wanted = {(hit.passage.path, hit.passage.symbol) for hit in found.hits if hit.passage.symbol}
    symbols = await asyncio.to_thread(read_symbols, snapshot, pool.parts.index)
    async with open_intent_writer(settings, snapshot, reporter) as writer:
        written = await writer.write([s for s in symbols if (s.path, s.name) in wanted], wait=False)
    if written.error is not None:
        reporter(Notice(f"{written.left:,} symbols without intents: {written.error}", "warning"))
    pool.forget_shelf(Label.INTENT)


async def _fill(
    settings: Settings,
    snapshot: Snapshot,
    labels: tuple[Label, ...],
    asked: PoolRequest,
    reporter: Reporter,
) -> tuple[tuple[CorpusReport, ...], Written | None, str]:
    from agent.corpora.symbols import read_symbols
    from agent.services.corpora import StoreUse, open_intent_writer, open_pool

    others = tuple(label for label in labels if label is not Label.CODE)
    use = StoreUse.MANAGE if asked.fresh else StoreUse.FILL
    async with open_pool(settings, snapshot, reporter, others, use=use) as pool:
        written = None
        if asked.by_model and Label.INTENT in labels:
            symbols = await asyncio.to_thread(read_symbols, snapshot, pool.parts.index)
            async with open_intent_writer(settings, snapshot, reporter) as writer:
                written = await writer.write(symbols)
        vectors = pool.parts.vectors
        if asked.fresh and vectors is not None:
            for label in others:
                await asyncio.to_thread(vectors.forget, label)
        reports = await pool.fill()
        return reports, written, "" if vectors is None else vectors.store.url


def _fill_code(
    settings: Settings, snapshot: Snapshot, reporter: Reporter
) -> tuple[IndexSummary, int]:
    from agent.services.retrieval import fill_history, fill_index, missing_models

    for note in missing_models(settings):
        reporter(Notice(note, "warning"))
    return fill_index(settings, snapshot, reporter), fill_history(settings, snapshot, reporter)
