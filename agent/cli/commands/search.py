"""`agent search`: print the best ranked passages of the code and of other corpora."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import (
    guarded,
    load_problem,
    load_settings,
    load_snapshot,
    own_file,
    print_value,
    write_stdout,
)
from agent.cli.commands.hits import as_json, finding_as_json, render, render_findings
from agent.cli.commands.precomputed import corpus_agent, search_vectors
from agent.cli.commands.retrieval import rank_chunks, warning
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

_CANDIDATES = 40  # symbols for which a model writes intents in one query


def requested_corpora(
    given: Mapping[str, Any], settings: Settings, flags: Mapping[str, Any]
) -> tuple[Label, ...]:
    """Return the requested corpora. Raises ConfigurationError.

    An option that only applies to other corpora, such as `--store`, means all except memory and
    vectors, which must be named.
    """
    from agent.search import Label
    from agent.wiring.search import read_labels

    named = [name.strip() for part in given["corpus"] for name in part.split(",") if name.strip()]
    if named:
        return read_labels(named)
    if settings.corpora:
        return read_labels((Label.CODE.value, *settings.corpora))
    options = (given.get(name) for name in ("fresh", "symbols", "read_symbols"))
    if given["intents"] == "llm" or "store" in flags or any(options):
        return (Label.CODE, Label.HISTORY, Label.DOCS, Label.INTENT)
    return (Label.CODE,)


def open_project(
    given: Mapping[str, Any],
    settings: Settings,
    reporter: Reporter,
    labels: tuple[Label, ...] = (),
) -> Snapshot:
    """Read the repository. Warn that a shallow clone has only a part of the history."""
    from agent.repository import locate
    from agent.search import Label

    own = (own_file(given.get("problem")),)
    snapshot = load_snapshot(
        given["repo"],
        given["commit"],
        given["dirty"],
        reporter,
        exclude=own,
        scope=given.get("path", Path()),
        max_file_mb=settings.max_file_mb,
    )
    if Label.HISTORY in labels and (locate(given["repo"]).git_dir / "shallow").exists():
        message = "[history] is not whole: this is a shallow clone (git fetch --unshallow)"
        reporter(Notice(message, "warning"))
    return snapshot


def _search(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Print the best chunks, or passages of several corpora, as a table or JSON."""
    problem = _query(given["query"], given["problem"])
    settings = load_settings(flags, repository=given["repo"])
    labels = requested_corpora(given, settings, flags)
    if len(labels) > 1 or given["corpus"] or given["expand"] != "off":
        count = _search_corpora(problem, given, settings, labels)
    else:
        count = _search_code(problem, given, settings)
    if not count:
        lower = "" if given["at_least"] is None else ", or a lower --at-least"
        say(f"agent: nothing matches; try other words, identifiers or another --corpus{lower}")
    return 0


def _search_code(problem: Problem, given: Mapping[str, Any], settings: Settings) -> int:
    from agent.search import matching_chunks, named_first

    with warning(quiet=given["quiet"]) as reporter:
        snapshot = open_project(given, settings, reporter)
        ranking = rank_chunks(problem, snapshot, settings, reporter)
    pairs = named_first(problem.text, matching_chunks(problem.text, ranking))
    hits = [pair for pair in pairs if pair[1] >= (given["at_least"] or 0.0)][: given["limit"]]
    if given["json"]:
        print_value(
            {
                "commit": snapshot.commit,
                "dirty": snapshot.dirty,
                "total_chunks": ranking.total_chunks,
                "notes": list(ranking.notes),
                "results": [as_json(hit, relevance) for hit, relevance in hits],
            }
        )
    else:
        write_stdout(render(hits, explain=given["explain"]))
    return len(hits)


def _query(query: str | None, source: str | None) -> Problem:
    if (query is None) == (source is None):
        raise ConfigurationError("give either a QUERY or --problem FILE")
    if source is not None:
        return load_problem(source)
    from agent.run.problem import read_problem

    assert query is not None
    if not query.strip():
        raise ConfigurationError("the query is empty: give words, identifiers or a traceback")
    return read_problem("-", stdin=io.BytesIO(query.encode("utf-8", "replace")))


def _search_corpora(
    problem: Problem, given: Mapping[str, Any], settings: Settings, labels: tuple[Label, ...]
) -> int:
    """Print the passages of several corpora as a labelled table or JSON."""
    from agent.wiring import endpoint

    with warning(quiet=given["quiet"]) as reporter:
        if given["expand"] == "llm":
            endpoint(settings)  # raises ConfigurationError before anything is read
        if given["expand"] == "project":
            settings = settings.model_copy(update={"expand": "project"})
        snapshot = open_project(given, settings, reporter, labels)
        started = time.perf_counter()
        reporter(StageStarted("retrieve"))
        results = asyncio.run(_search_pool(problem, given, settings, snapshot, labels, reporter))
        total = sum(results.searched.values())
        seconds = time.perf_counter() - started
        reporter(StageFinished("retrieve", seconds, f"{total:,} passages"))
        for note in results.notes:
            reporter(Notice(note, "warning"))
    if given["json"]:
        print_value(
            {
                "commit": snapshot.commit,
                "dirty": snapshot.dirty,
                "searched": {label.value: n for label, n in results.searched.items()},
                "notes": list(results.notes),
                "results": [finding_as_json(hit) for hit in results.hits],
            }
        )
    else:
        write_stdout(render_findings(results.hits, explain=given["explain"]))
    return len(results.hits)


async def _search_pool(
    problem: Problem,
    given: Mapping[str, Any],
    settings: Settings,
    snapshot: Snapshot,
    labels: tuple[Label, ...],
    reporter: Reporter,
) -> PoolResults:
    from agent.search import Label
    from agent.wiring.search import open_pool

    keywords = given["expand"] == "llm"
    agent = corpus_agent(given) if Label.VECTORS in labels else None
    opened = open_pool(settings, snapshot, reporter, labels, keywords=keywords, agent=agent)
    async with opened as pool:
        if given["intents"] == "llm" and Label.INTENT in labels:
            await _write_candidates(problem, settings, snapshot, pool, reporter)
        at_least = given["at_least"] or 0.0
        return await pool.search(
            problem, top_k=given["limit"], at_least=at_least, expand=given["expand"]
        )


async def _write_candidates(
    problem: Problem, settings: Settings, snapshot: Snapshot, pool: Pool, reporter: Reporter
) -> None:
    """Let the model write intents for the symbols that the query finds without its intents."""
    from agent.search import Label, read_symbols
    from agent.wiring.search import open_intent_writer

    others = [label for label in pool.corpora if label in (Label.CODE, Label.INTENT)]
    results = await pool.search(problem, corpora=others, top_k=_CANDIDATES)
    places = {(hit.passage.path, hit.passage.symbol) for hit in results.hits if hit.passage.symbol}
    symbols = await asyncio.to_thread(read_symbols, snapshot, pool.index)
    async with open_intent_writer(settings, snapshot, reporter) as writer:
        chosen = [symbol for symbol in symbols if (symbol.path, symbol.name) in places]
        written = await writer.write(chosen, wait=False)
    if written.error is not None:
        reporter(Notice(f"{written.left:,} symbols without intents: {written.error}", "warning"))
    pool.forget_corpus(Label.INTENT)


@declare(
    "search",
    settings=(*RETRIEVAL_SETTINGS, "store", "max_cost"),
    ending="""
    Example:
      agent search "where are cookies parsed" --repo ./target --explain

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
    "--precomputed", metavar="FOLDER|NAME",
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
    corpora = {name.strip() for part in given["corpus"] for name in part.split(",")}
    run = _search
    if "vectors" in corpora:
        if given["precomputed"] is not None:
            flags = {**flags, "precomputed": given["precomputed"]}
    elif given["precomputed"] is not None or given["vector"] or given["tag"] or given["agent_name"]:
        run = search_vectors
    return guarded(lambda: run(given, flags), flags=flags)
