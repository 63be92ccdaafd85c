"""`agent search`, `agent context`, `agent index`: retrieval made visible, without a model call."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.common import (
    guarded,
    load_problem,
    load_snapshot,
    own_file,
    print_value,
    reporting,
    say,
    write_stdout,
)
from agent.errors import ConfigurationError
from agent.events import StageFinished, StageStarted
from agent.types import ContextBundle, Problem, Ranking, ScoredChunk

if TYPE_CHECKING:
    from agent.protocols import Reporter, Snapshot
    from agent.settings import Settings


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """What is asked of one invocation, beside the settings."""

    problem: str | None
    repo: Path
    commit: str | None
    dirty: str
    json: bool
    quiet: bool
    verbose: bool


def search(request: InspectRequest, query: str | None, limit: int, flags: Mapping[str, Any]) -> int:
    """Print the best chunks as a table or JSON."""
    return guarded(lambda: _search(request, query, limit, flags))


def context(request: InspectRequest, flags: Mapping[str, Any], *, prompt: bool) -> int:
    """Print the packed context and its receipt as Markdown or JSON, or the whole prompt."""
    return guarded(lambda: _context(request, flags, prompt=prompt))


def index(request: InspectRequest) -> int:
    """Fill the cache and print what it holds."""
    return guarded(lambda: _index(request))


def _search(
    request: InspectRequest, query: str | None, limit: int, flags: Mapping[str, Any]
) -> int:
    problem = _query(request, query)
    with reporting(quiet=request.quiet) as reporter:
        settings, snapshot = _open(request, flags, reporter)
        ranking = _rank(problem, snapshot, settings, reporter)
    found = ranking.chunks[:limit]
    if request.json:
        print_value(
            {
                "commit": snapshot.commit,
                "dirty": snapshot.dirty,
                "total_chunks": ranking.total_chunks,
                "notes": list(ranking.notes),
                "results": [_as_json(hit) for hit in found],
            }
        )
    else:
        write_stdout(_table(found, verbose=request.verbose).encode("utf-8", "replace"))
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
    return read_problem("-", stdin=io.BytesIO(query.encode("utf-8", "replace")))


def _context(request: InspectRequest, flags: Mapping[str, Any], *, prompt: bool) -> int:
    from agent.context.packing import pack
    from agent.context.receipt import make_receipt, render_receipt
    from agent.prompting import solve_prompt
    from agent.retrieval.chunking import TreeSitterChunker
    from agent.services import make_counter, packing_options
    from agent.validation.hints import find_test_hints

    assert request.problem is not None
    problem = load_problem(request.problem)
    with reporting(quiet=request.quiet) as reporter:
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


def _index(request: InspectRequest) -> int:
    from agent.services import fill_index, index_path

    with reporting(quiet=request.quiet) as reporter:
        settings, snapshot = _open(request, {}, reporter)
        started = time.perf_counter()
        summary = fill_index(settings, snapshot, reporter)
        seconds = time.perf_counter() - started
    if request.json:
        print_value(
            {
                **asdict(summary),
                "seconds": round(seconds, 3),
                "commit": snapshot.commit,
                "cache": str(index_path(settings)),
            }
        )
    else:
        known = summary.files - summary.built
        line = (
            f"{summary.files:,} files, {summary.chunks:,} chunks ({known:,} files were known) "
            f"in {seconds:.2f} s; kept in {index_path(settings)}\n"
        )
        write_stdout(line.encode())
    return 0


def _open(
    request: InspectRequest, flags: Mapping[str, Any], reporter: Reporter
) -> tuple[Settings, Snapshot]:
    from agent.settings import load

    settings = load(flags, repository=request.repo)
    own = (own_file(request.problem),)
    return settings, load_snapshot(
        request.repo, request.commit, request.dirty, reporter, exclude=own
    )


def _rank(problem: Problem, snapshot: Snapshot, settings: Settings, reporter: Reporter) -> Ranking:
    from agent.services import open_retriever

    async def rank() -> Ranking:
        async with open_retriever(settings, reporter) as retriever:
            return await retriever.rank(problem, snapshot)

    started = time.perf_counter()
    reporter(StageStarted("retrieve"))
    ranking = asyncio.run(rank())
    seconds = time.perf_counter() - started
    reporter(StageFinished("retrieve", seconds, f"{ranking.total_chunks:,} chunks"))
    return ranking


def _as_json(hit: ScoredChunk) -> dict[str, Any]:
    chunk = hit.chunk
    return {
        "path": chunk.path,
        "start": chunk.start,
        "end": chunk.end,
        "symbol": chunk.symbol,
        "kind": chunk.kind.value,
        "score": round(hit.score, 6),
        "reasons": [
            {"feature": r.feature, "value": round(r.value, 6), "note": r.note} for r in hit.reasons
        ],
    }


def _table(hits: tuple[ScoredChunk, ...], *, verbose: bool) -> str:
    lines = []
    for position, hit in enumerate(hits, 1):
        chunk = hit.chunk
        place = f"{chunk.path}:{chunk.start}-{chunk.end}"
        lines.append(f"{position:3}  {hit.score:7.3f}  {place}  {chunk.symbol or chunk.kind.value}")
        if verbose:
            for reason in hit.reasons:
                note = f"  {reason.note}" if reason.note else ""
                lines.append(f"              {reason.feature:<12} {reason.value:+.3f}{note}")
    return "".join(f"{line}\n" for line in lines)
