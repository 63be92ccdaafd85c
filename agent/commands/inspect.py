"""`agent search`, `agent context`, `agent index`: retrieval made visible, without a model call."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agent.commands.common import (
    guarded,
    load_problem,
    load_snapshot,
    own_file,
    print_value,
    say,
    write_stdout,
)
from agent.commands.hits import as_json, render, terminal_width
from agent.commands.keeping import refuse_unkept
from agent.commands.requests import CODE_ALONE, InspectRequest, PoolRequest
from agent.commands.warning import warning
from agent.errors import ConfigurationError
from agent.events import Notice, StageFinished, StageStarted
from agent.types import ContextBundle, Problem, Ranking

if TYPE_CHECKING:
    from agent.protocols import Reporter, Snapshot
    from agent.settings import Settings


def search(
    request: InspectRequest,
    query: str | None,
    limit: int,
    flags: Mapping[str, Any],
    asked: PoolRequest = CODE_ALONE,
) -> int:
    """Print the best chunks, or findings of several corpora, as a table or JSON."""
    return guarded(lambda: _search(request, query, limit, flags, asked))


def context(request: InspectRequest, flags: Mapping[str, Any], *, prompt: bool) -> int:
    """Print the packed context and its receipt as Markdown or JSON, or the whole prompt."""
    return guarded(lambda: _context(request, flags, prompt=prompt))


def index(
    request: InspectRequest, flags: Mapping[str, Any], asked: PoolRequest = CODE_ALONE
) -> int:
    """Fill the caches, and the store where corpora are named, and print what they hold."""
    return guarded(lambda: _index(request, flags, asked))


def _search(
    request: InspectRequest,
    query: str | None,
    limit: int,
    flags: Mapping[str, Any],
    asked: PoolRequest,
) -> int:
    from agent.commands import corpora
    from agent.corpora.matching import matching

    problem = _query(request, query)
    if corpora.concerns(request, flags, asked):
        return corpora.search(request, problem, limit, flags, asked)
    with warning(quiet=request.quiet) as reporter:
        settings, snapshot = _open(request, flags, reporter)
        ranking = _rank(problem, snapshot, settings, reporter)
    found = matching(problem.text, ranking)[:limit]
    if request.json:
        print_value(
            {
                "commit": snapshot.commit,
                "dirty": snapshot.dirty,
                "total_chunks": ranking.total_chunks,
                "notes": list(ranking.notes),
                "results": [as_json(hit) for hit in found],
            }
        )
    else:
        table = render(found, explain=request.explain, width=terminal_width())
        write_stdout(table.encode("utf-8", "replace"))
    if not found:
        say("agent: nothing matches; try other words or identifiers")
    return 0


def _query(request: InspectRequest, query: str | None) -> Problem:
    if (query is None) == (request.problem is None):
        raise ConfigurationError("give either a QUERY or --problem FILE")
    if request.problem is not None:
        return load_problem(request.problem)
    from agent.problem import read_problem

    assert query is not None
    if not query.strip():
        raise ConfigurationError("the query is empty: give words, identifiers or a traceback")
    return read_problem("-", stdin=io.BytesIO(query.encode("utf-8", "replace")))


def _context(request: InspectRequest, flags: Mapping[str, Any], *, prompt: bool) -> int:
    from agent.context.packing import pack
    from agent.context.receipt import make_receipt, render_receipt
    from agent.prompting import solve_prompt
    from agent.retrieval.chunking import TreeSitterChunker
    from agent.services.context import make_counter, packing_options
    from agent.validation.choosing.hints import find_test_hints

    assert request.problem is not None
    problem = load_problem(request.problem)
    with warning(quiet=request.quiet) as reporter:
        settings, snapshot = _open(request, flags, reporter)
        ranking = _rank(problem, snapshot, settings, reporter)
        counter = make_counter(settings.model)
        bundle: ContextBundle = pack(
            problem,
            ranking,
            snapshot,
            counter,
            packing_options(settings),
            chunker=TreeSitterChunker(),
        )
    receipt = make_receipt(ranking, bundle)
    if prompt:
        tests = find_test_hints(problem, ranking, snapshot, counter)
        messages = solve_prompt(problem, bundle, tests, counter).messages
        if request.json:
            print_value([{"role": m.role, "content": m.content} for m in messages])
        else:
            shown = "\n\n".join(f"[{m.role}]\n{m.content}" for m in messages)
            write_stdout(f"{shown}\n".encode("utf-8", "replace"))
    elif request.json:
        print_value({**receipt.as_json(), "text": bundle.text})
    else:
        shown = f"{bundle.text}\n\n## Receipt\n\n{render_receipt(receipt)}"
        write_stdout(shown.encode("utf-8", "replace"))
    return 0


def _index(request: InspectRequest, flags: Mapping[str, Any], asked: PoolRequest) -> int:
    from agent.commands import corpora
    from agent.services.retrieval import fill_history, fill_index, index_path, missing_models

    if asked.show or asked.drop is not None or asked.forget:
        return corpora.manage(request, flags, asked)
    if corpora.concerns(request, flags, asked):
        return corpora.index(request, flags, asked)

    with warning(quiet=request.quiet) as reporter:
        settings, snapshot = _open(request, flags, reporter)
        refuse_unkept(settings)
        for note in missing_models(settings):
            reporter(Notice(note, "warning"))
        started = time.perf_counter()
        summary = fill_index(settings, snapshot, reporter)
        commits = fill_history(settings, snapshot, reporter)
        seconds = time.perf_counter() - started
    if request.json:
        print_value(
            {
                **asdict(summary),
                "commits": commits,
                "seconds": round(seconds, 3),
                "commit": snapshot.commit,
                "cache": str(index_path(settings)),
            }
        )
    else:
        known = summary.files - summary.built
        line = (
            f"{summary.files:,} files, {summary.chunks:,} chunks ({known:,} files were known), "
            f"{commits:,} commits in {seconds:.2f} s; kept in {index_path(settings).parent}\n"
        )
        write_stdout(line.encode())
    return 0


def _open(
    request: InspectRequest, flags: Mapping[str, Any], reporter: Reporter
) -> tuple[Settings, Snapshot]:
    from agent.services.retrieval import retrieval_options
    from agent.settings import load

    settings = load(flags, repository=request.repo)
    retrieval_options(settings)  # a name that there is not is said before anything is read
    own = (own_file(request.problem),)
    return settings, load_snapshot(
        request.repo, request.commit, request.dirty, reporter, exclude=own
    )


def _rank(problem: Problem, snapshot: Snapshot, settings: Settings, reporter: Reporter) -> Ranking:
    from agent.retrieval.ranking import no_words
    from agent.services.retrieval import open_retriever

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
