"""Commands that show how code is ranked: `agent search`, `agent context` and `agent plan`."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from agent.cli import options
from agent.cli.commands import common
from agent.errors import ConfigurationError
from agent.run.record import Ledger, StageTimer
from agent.shared.secrets import mask_secrets
from agent.shared.terminal import inert, say
from agent.types import Reason
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.search import Label, Passage, PoolHit
    from agent.settings import Settings
    from agent.types import Problem, Ranking
    from agent.types.protocols import Reporter, Snapshot

_INDENT = " " * 5


def rank_chunks(
    problem: Problem, snapshot: Snapshot, settings: Settings, reporter: Reporter
) -> Ranking:
    """Rank the chunks for a problem, and report which inputs the ranking could not use."""
    from agent.retrieval.ranking import no_words
    from agent.wiring import open_retriever

    async def rank() -> Ranking:
        async with open_retriever(settings, reporter) as retriever:
            return await retriever.rank(problem, snapshot)

    with StageTimer(reporter, Ledger()).stage("retrieve") as summary:
        ranking = asyncio.run(rank())
        summary.append(f"{ranking.total_chunks:,} chunks")
    for note in no_words(ranking):
        reporter(Notice(note, "warning"))
    return ranking


def open_project(
    given: Mapping[str, Any], settings: Settings, reporter: Reporter, labels: tuple[Label, ...] = ()
) -> Snapshot:
    """Read the repository. Warn that a shallow clone has only a part of the history."""
    from agent.repository import locate_repository
    from agent.search import Label

    snapshot = common.load_snapshot(given, settings, reporter)
    if Label.HISTORY in labels and (locate_repository(given["repo"]).git_dir / "shallow").exists():
        message = "[history] is not whole: this is a shallow clone (git fetch --unshallow)"
        reporter(Notice(message, "warning"))
    return snapshot


def requested_corpora(
    given: Mapping[str, Any], settings: Settings, flags: Mapping[str, Any]
) -> tuple[Label, ...]:
    """Return the requested corpora; all but memory and vectors for options of other corpora."""
    from agent.search import Label
    from agent.wiring.search import read_labels

    if given["corpus"]:
        return read_labels(given["corpus"])
    if settings.corpora:
        return read_labels((Label.CODE.value, *settings.corpora))
    others = (given.get(name) for name in ("fresh", "symbols"))
    if given.get("intents") == "llm" or "store" in flags or any(others):
        return (Label.CODE, Label.HISTORY, Label.DOCS, Label.INTENT)
    return (Label.CODE,)


# ------------------------------------------------------------------------------------- agent search


@options.command(
    "search",
    settings=(*options.RETRIEVAL_SETTINGS, "store", "max_cost"),
    ending="""
    Example:
      agent search "where are cookies parsed" --repo ./target --explain

    All corpora, and vectors of another program:
      agent search "expired cookies" --corpus code,docs,intent,history
      agent search --precomputed ./vectors --vector query.json
    """,
)
@click.argument("query", required=False)
@options.text("--problem", "TEXT", "Search for a whole issue instead.")
@options.base
@options.number("--limit -n", 1, "Most results.", 20)
@options.corpora
@options.number("--at-least", 0.0, "Least cosine with the query (not for code).")
@options.choice("--expand", ("off", "llm"), "off", "Add keywords of a model.")
@options.path("--precomputed", "Search this folder of vectors of another program.")
@options.text("--vector", "FILE", "The query's vector, a JSON array; `-` for stdin.")
@options.text("--tag", "TAG", "Only vectors with this tag (repeatable: all).", multiple=True)
@options.as_json
@options.quiet
@options.flag("--explain --verbose -v", "Show the signed parts that add up to each score.")
def search_command(flags: Mapping[str, Any], **given: Any) -> int:
    """Show what ranks highest, and why: chunks of code, and of other corpora beside them."""
    if "vectors" in ",".join(given["corpus"]).split(","):
        if given["precomputed"] is not None:
            flags = {**flags, "precomputed": given["precomputed"]}
    elif given["precomputed"] is not None or given["vector"] or given["tag"]:
        from agent.cli.commands.precomputed import search_vectors

        return search_vectors(given, flags)
    from agent.search import Label

    problem = _query(given["query"], given["problem"])
    settings = common.load_settings(flags, repository=given["repo"])
    labels = requested_corpora(given, settings, flags)
    if given["at_least"] is not None and Label.CODE in labels:
        raise ConfigurationError(
            "--at-least is a cosine, which results of code do not have: name other corpora "
            "(--corpus docs,intent), or use --limit"
        )
    with common.reporting(quiet=given["quiet"], warn=True) as reporter:
        facts, table = _search(problem, given, settings, labels, reporter)
    common.print_result(facts, table, json=given["json"])
    if not facts["results"]:
        lower = "" if given["at_least"] is None else ", or a lower --at-least"
        say(f"agent: nothing matches; try other words, identifiers or another --corpus{lower}")
    return 0


def _query(query: str | None, source: str | None) -> Problem:
    from agent.run.problem import problem_from_text

    if source is not None and query is None:
        return common.load_problem(source)
    if query is None or source is not None:
        raise ConfigurationError("give either a QUERY or --problem FILE")
    if not query.strip():
        raise ConfigurationError("the query is empty: give words, identifiers or a traceback")
    return problem_from_text(query, "<stdin>")


def _search(
    problem: Problem,
    given: Mapping[str, Any],
    settings: Settings,
    labels: tuple[Label, ...],
    reporter: Reporter,
) -> tuple[dict[str, Any], str]:
    """Return the best passages of the corpora as JSON values and as a table."""
    from agent.search import Label, PoolResults
    from agent.wiring import endpoint
    from agent.wiring.search import open_pool

    expand, tags = given["expand"] == "llm", given["tag"]
    if expand:
        endpoint(settings)  # raises ConfigurationError before anything is read
    snapshot = open_project(given, settings, reporter, labels)

    async def search() -> PoolResults:
        opened = open_pool(settings, snapshot, reporter, labels, keywords=expand, tags=tags)
        async with opened as pool:
            limit, least = given["limit"], given["at_least"]
            return await pool.search(problem, top_k=limit, at_least=least)

    with StageTimer(reporter, Ledger()).stage("retrieve") as summary:
        results = asyncio.run(search())
        summary.append(f"{sum(results.searched.values()):,} chunks and passages")
    for note in results.notes:
        reporter(Notice(note, "warning"))
    facts = {
        "commit": snapshot.commit,
        "dirty": snapshot.dirty,
        "searched": dict(results.searched),
        "total_chunks": results.searched.get(Label.CODE, 0),
        "notes": list(results.notes),
        "results": [finding_as_json(hit) for hit in results.hits],
    }
    several = labels != (Label.CODE,)
    return facts, render_findings(results.hits, explain=given["explain"], labelled=several)


# ------------------------------------------------------------------------------------ agent context


@options.command(
    "context",
    settings=(*options.CONTEXT_SETTINGS, "corpora", "precomputed", "plan", "store"),
    ending="""
    Example:
      agent context issue.md --repo ./target
    """,
)
@options.problem
@options.base
@options.scope
@options.flag("--prompt", "Print the whole prompt instead, as it would be sent.")
@options.as_json
@options.quiet
def context_command(flags: Mapping[str, Any], prompt: bool, json: bool, **given: Any) -> int:
    """Show the packed context and its receipt, as the model would be shown it; no model call."""
    from agent.retrieval.context import make_receipt, render_receipt
    from agent.retrieval.index import TreeSitterChunker
    from agent.retrieval.ranking import in_scope
    from agent.run.context_steps import background_text, pack_beside
    from agent.run.prompting import solve_prompt
    from agent.verify import find_test_hints, known_secrets
    from agent.wiring import make_background, make_counter, packing_options

    issue = _issue(given)
    with common.reporting(quiet=given["quiet"], warn=True) as reporter:
        settings = common.load_settings(flags, repository=given["repo"])
        counter, packing = make_counter(settings.model), packing_options(settings)
        snapshot = in_scope(issue, open_project(given, settings, reporter))
        ranking = rank_chunks(issue, snapshot, settings, reporter)
        finders = make_background(settings, counter, reporter)
        beside = asyncio.run(
            background_text(finders, issue, snapshot, ranking, packing.budget, counter)
        )
        bundle = pack_beside(
            beside, issue, ranking, snapshot, counter, packing, TreeSitterChunker()
        )
    receipt, masked = make_receipt(ranking, bundle), known_secrets(snapshot).masked
    if prompt:
        tests = find_test_hints(issue, ranking, snapshot, counter)
        sent = solve_prompt(issue, bundle, tests, counter, settings.outdated_tests).messages
        messages = [{"role": m.role, "content": masked(m.content)} for m in sent]
        text = "\n\n".join(f"[{m['role']}]\n{m['content']}" for m in messages)
        common.print_result(messages, f"{text}\n", json=json)
    else:
        text = masked(bundle.text)
        shown = f"{text}\n\n## Receipt\n\n{render_receipt(receipt)}"
        common.print_result({**asdict(receipt), "text": text}, shown, json=json)
    return 0


def _issue(given: dict[str, Any]) -> Problem:
    """Load the issue of ISSUE or `--problem`, which becomes `problem`."""
    how = "ISSUE or --problem"
    given["problem"] = common.one_of("the issue", how, given["issue"], given["problem"])
    return common.load_problem(given["problem"])


# --------------------------------------------------------------------------------------- agent plan


@options.command(
    "plan",
    settings=(*options.RETRIEVAL_SETTINGS, "store"),
    ending="""
    Example:
      agent plan issue.md --repo ./target
    """,
)
@options.problem
@options.base
@options.scope
@options.number("--beam", 1, "Plans that each round of the search keeps (best-first without).")
@options.as_json
@options.quiet
def plan_command(flags: Mapping[str, Any], json: bool, **given: Any) -> int:
    """Show a plan for an issue: what to look for, and the code where it is."""
    from agent.retrieval.ranking import in_scope
    from agent.wiring import make_counter, make_planner

    problem = _issue(given)
    settings = common.load_settings(flags, repository=given["repo"])
    with common.reporting(quiet=given["quiet"], warn=True) as reporter:
        snapshot = in_scope(problem, open_project(given, settings, reporter))
        ranking = rank_chunks(problem, snapshot, settings, reporter)
        counter = make_counter(settings.model)
        planner = make_planner(settings, counter, reporter, beam=given["beam"])
        planned = asyncio.run(planner.plan(problem, snapshot, ranking))
    steps, lines = [], list[str]()
    for number, step in enumerate(planned.steps, start=1):
        lines.append(f"{number}. {step.score:.2f}  {step.intent}")
        lines.extend(f"      {p.path}:{p.start}-{p.end}  {p.symbol}" for p in step.places)
        intent, places = mask_secrets(step.intent).text, [p._asdict() for p in step.places]
        steps.append({"intent": intent, "score": round(step.score, 6), "places": places})
    facts = {"commit": snapshot.commit, "value": round(planned.value, 6), "steps": steps}
    common.print_result(facts, shown(lines), json=json)
    if not planned.steps:
        say("agent: no plan; say in the issue what goes wrong, and where it shows")
    return 0


# ------------------------------------------------------------------------- tables and JSON of hits


def _reasons_as_json(reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    return [
        {"feature": r.feature, "value": round(r.value, 6), "note": mask_secrets(r.note).text}
        for r in reasons
    ]


def finding_as_json(finding: PoolHit) -> dict[str, Any]:
    """Return a finding of a corpus with its passage and its near-duplicates."""
    passage = finding.passage
    return {
        **_passage_as_json(passage),
        "kind": passage.tags[0] if passage.corpus == "code" else passage.corpus,
        "score": round(finding.value, 6),
        "score_name": finding.score_name,
        "similarity": round(finding.similarity, 6) if finding.similarity else None,
        "place": finding.rank,
        "reasons": _reasons_as_json(finding.reasons),
        "same": [_passage_as_json(passage) for passage in finding.same],
        "text": mask_secrets(finding.passage.text).text,
    }


def _passage_as_json(passage: Passage) -> dict[str, Any]:
    plain = ("corpus", "path", "start", "end", "symbol", "origin", "tags")
    title = mask_secrets(passage.title).text
    return {"title": title, **{name: getattr(passage, name) for name in plain}}


def render_findings(hits: Sequence[PoolHit], *, explain: bool, labelled: bool = True) -> str:
    """Return one line for each finding; with `explain`, how it came to its place below it."""
    rows = []
    for hit in hits:
        passage, details = hit.passage, list[str]()
        label = f"{f'[{passage.corpus.value}]':<9}  " if labelled else ""
        title = "" if passage.title == passage.symbol else f"  {passage.title}"
        more = f"  (+{len(hit.same)} alike)" if hit.same else ""
        if explain:
            details.append(f"place {hit.rank} in its corpus, from")
            if passage.corpus == "code":
                details = [f"score {hit.value:.3f}, the sum of"]
            details += map(_contribution, hit.reasons)
            details += (f"also     [{p.corpus.value}] {p.place}" for p in hit.same)
        score = f"{hit.score_name} {hit.value:.2f}"
        rows.append((score, f"{label}{passage.place}{title}{more}", details))
    return result_lines(rows)


def _contribution(reason: Reason) -> str:
    return f"{reason.value:+7.3f}  {reason.feature:<11}  {reason.note}".rstrip()


def result_lines(rows: Sequence[tuple[str, str, Sequence[str]]]) -> str:
    """Return the lines of results: a rank, a score with its name, a text, and details below it."""
    lines: list[str] = []
    width = max((len(score) for score, _, _ in rows), default=0)
    for position, (score, text, details) in enumerate(rows, start=1):
        lines.append(f"{position:3}  {score:<{width}}  {text}")
        lines.extend(f"{_INDENT}{detail}" for detail in details)
    return shown(lines)


def shown(lines: Sequence[str]) -> str:
    """Return lines with secrets masked, cut to the width of a terminal."""
    masked = mask_secrets("\n".join(inert(line, kept="") for line in lines)).text
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        cut = [f"{x[: width - 1]}…" if len(x) > width else x for x in masked.split("\n")]
        masked = "\n".join(cut)
    return f"{masked}\n" if lines else ""
