"""`agent search`: print the best ranked passages of the code and of other corpora."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import guarded, load_problem, print_value, write_stdout
from agent.cli.commands.hits import (
    as_json,
    finding_as_json,
    render,
    render_findings,
    terminal_width,
)
from agent.cli.commands.precomputed import corpus_agent, search_by_options
from agent.cli.commands.retrieval import (
    CODE_ALONE,
    InspectRequest,
    PoolRequest,
    beyond_code,
    open_code,
    open_settings,
    open_snapshot,
    rank_chunks,
    requested_corpora,
    say_shallow,
    warning,
)
from agent.cli.options import (
    RETRIEVAL_SETTINGS,
    choice_option,
    corpus_options,
    json_option,
    quiet_option,
    repo_options,
)
from agent.cli.options import command as declare
from agent.errors import ConfigurationError
from agent.shared.terminal import say
from agent.types.events import Notice, StageFinished, StageStarted

if TYPE_CHECKING:
    from agent.search import Label, Pool, PoolResults
    from agent.settings import Settings
    from agent.types import Problem
    from agent.types.protocols import Reporter, Snapshot

CANDIDATES = 40
"""Number of symbols for which a model writes intents in one query: about as many as a person reads.
"""


def search(
    request: InspectRequest,
    query: str | None,
    limit: int,
    flags: Mapping[str, Any],
    asked: PoolRequest = CODE_ALONE,
) -> int:
    """Print the best chunks, or findings of several corpora, as a table or JSON."""
    return guarded(lambda: _search(request, query, limit, flags, asked), flags=flags)


def _search(
    request: InspectRequest,
    query: str | None,
    limit: int,
    flags: Mapping[str, Any],
    asked: PoolRequest,
) -> int:
    from agent.search import matching_chunks, named_first

    problem = _query(request, query)
    settings = open_settings(request, flags)
    if beyond_code(settings, flags, asked):
        labels = requested_corpora(settings, flags, asked)
        return _search_corpora(request, problem, limit, settings, labels, asked)
    with warning(quiet=request.quiet) as reporter:
        snapshot = open_code(request, settings, reporter)
        ranking = rank_chunks(problem, snapshot, settings, reporter)
    pairs = named_first(problem.text, matching_chunks(problem.text, ranking))
    found = [pair for pair in pairs if pair[1] >= (asked.at_least or 0.0)][:limit]
    if request.json:
        print_value(
            {
                "commit": snapshot.commit,
                "dirty": snapshot.dirty,
                "total_chunks": ranking.total_chunks,
                "notes": list(ranking.notes),
                "results": [as_json(hit, relevance) for hit, relevance in found],
            }
        )
    else:
        table = render(found, explain=request.explain, width=terminal_width())
        write_stdout(table)
    if not found:
        lower = "" if asked.at_least is None else ", or a lower --at-least"
        say(f"agent: nothing matches; try other words or identifiers{lower}")
    return 0


def _query(request: InspectRequest, query: str | None) -> Problem:
    if (query is None) == (request.problem is None):
        raise ConfigurationError("give either a QUERY or --problem FILE")
    if request.problem is not None:
        return load_problem(request.problem)
    from agent.run.problem import read_problem

    assert query is not None
    if not query.strip():
        raise ConfigurationError("the query is empty: give words, identifiers or a traceback")
    return read_problem("-", stdin=io.BytesIO(query.encode("utf-8", "replace")))


def _search_corpora(
    request: InspectRequest,
    problem: Problem,
    limit: int,
    settings: Settings,
    labels: tuple[Label, ...],
    asked: PoolRequest,
) -> int:
    """Print the findings of several corpora as a labelled table or JSON."""
    from agent.search import Label

    with warning(quiet=request.quiet) as reporter:
        if asked.expand == "llm":
            _check_model(settings)
        if asked.expand == "project" and Label.CODE in labels:
            settings = settings.model_copy(update={"expand": "project"})
        snapshot = open_snapshot(request, settings, reporter)
        say_shallow(request, labels, reporter)
        started = time.perf_counter()
        reporter(StageStarted("retrieve"))
        work = _search_pool(problem, limit, settings, snapshot, labels, asked, reporter)
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
        write_stdout(table)
    if not findings.hits:
        lower = "" if asked.at_least is None else ", or a lower --at-least"
        say(f"agent: nothing matches; try other words or another --corpus{lower}")
    return 0


def _check_model(settings: Settings) -> None:
    """Raise ConfigurationError if no model is configured, before anything is read."""
    from agent.wiring import endpoint

    endpoint(settings)


async def _search_pool(
    problem: Problem,
    limit: int,
    settings: Settings,
    snapshot: Snapshot,
    labels: tuple[Label, ...],
    asked: PoolRequest,
    reporter: Reporter,
) -> PoolResults:
    from agent.search import Label
    from agent.wiring.search import open_pool

    llm = asked.expand == "llm"
    opened = open_pool(settings, snapshot, reporter, labels, keywords=llm, agent=asked.agent)
    async with opened as pool:
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
    """Let the model write intents for the symbols that the query finds without intents."""
    from agent.search import Label, read_symbols
    from agent.wiring.search import open_intent_writer

    others = [label for label in pool.corpora if label in (Label.CODE, Label.INTENT)]
    found = await pool.search(problem, corpora=others, top_k=CANDIDATES)
    wanted = {(hit.passage.path, hit.passage.symbol) for hit in found.hits if hit.passage.symbol}
    symbols = await asyncio.to_thread(read_symbols, snapshot, pool.parts.index)
    async with open_intent_writer(settings, snapshot, reporter) as writer:
        written = await writer.write([s for s in symbols if (s.path, s.name) in wanted], wait=False)
    if written.error is not None:
        reporter(Notice(f"{written.left:,} symbols without intents: {written.error}", "warning"))
    pool.forget_corpus(Label.INTENT)


@declare(
    "search",
    settings=(*RETRIEVAL_SETTINGS, "store", "max_cost"),
    ending="""
    Example:
      agent search "where are cookies parsed" --repo ./target --explain

    What a part is worth:
      agent search --problem issue.md --without history --without ranker

    All corpora:
      agent search "expired cookies" --corpus code,docs,intent,history

    Vectors of another program, alone or beside the code:
      agent search --precomputed ./vectors --vector query.json
      agent search "expired cookies" --corpus code,vectors --precomputed ./vectors
    """,
)
@click.argument("query", required=False)
@click.option("--problem", help="Search for a whole issue instead.")
@repo_options
@click.option(
    "--limit", "-n", type=click.IntRange(1), default=20, show_default=True, help="Most results."
)
@corpus_options
@click.option(
    "--at-least", type=click.FloatRange(0, 1),
    help="Least relevance: the probability that a result is what the query describes.",
)  # fmt: skip
@choice_option(
    "--expand", ("off", "project", "llm"), "off",
    "Add to the query: words that go with its own in this project, or a model's.",
)  # fmt: skip
@click.option(
    "--precomputed", metavar="FOLDER|NAME", multiple=True,
    help="Search precomputed vectors instead: of a folder, or of a collection of the store. With "
    "--corpus vectors, search the folder beside the others.",
)  # fmt: skip
@click.option(
    "--vector", metavar="FILE",
    help="The query's vector, a JSON array; `-` for stdin. Without it the query in words is "
    "embedded by the model of the settings, which must be theirs.",
)  # fmt: skip
@click.option(
    "--tag", metavar="TAG", multiple=True, help="Only vectors with this tag (repeatable: all)."
)
@click.option(
    "--agent-name",
    metavar="NAME",
    help="Use this agent's settings of --agents, or its defaults: 5 results of any similarity.",
)
@click.option("--agents", metavar="FILE", help="Settings of agents, as JSON or TOML.")
@json_option
@quiet_option
@click.option(
    "--explain", "--verbose", "-v", is_flag=True,
    help="Below each chunk the signed parts that add up to its score.",
)  # fmt: skip
def command(flags: Mapping[str, Any], **given: Any) -> int:
    """Show what ranks highest, and why: chunks of code, and of other corpora beside them."""
    alone = ("vector", "agent_name", "agents")
    corpora = {name.strip() for part in given["corpus"] for name in part.split(",")}
    if given["precomputed"] or given["tag"] or any(given[name] is not None for name in alone):
        if "vectors" not in corpora:
            return search_by_options(given, flags)
        if given["precomputed"]:
            flags = {**flags, "precomputed": given["precomputed"][0]}
    request = InspectRequest(
        **{name: given[name] for name in ("problem", "repo", "commit", "dirty", "json", "quiet")},
        explain=given["explain"],
    )

    def run() -> int:
        asked = PoolRequest(
            corpora=given["corpus"],
            at_least=given["at_least"],
            expand=given["expand"],
            by_model=given["intents"] == "llm",
            agent=corpus_agent(given) if "vectors" in corpora else None,
        )
        return search(request, given["query"], given["limit"], flags, asked)

    return guarded(run)
