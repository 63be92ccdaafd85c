"""`agent index`: fill the caches of code and commits, and the vector store of other corpora."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agent.cli import options
from agent.cli.commands import common
from agent.cli.commands.search import open_project, requested_corpora
from agent.errors import ConfigurationError
from agent.shared.terminal import counted, say
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.search import CorpusReport, IntentCounts, Label
    from agent.settings import Settings
    from agent.types.protocols import Reporter, Snapshot


@options.command(
    "index",
    settings=("embed", "store", "max_cost"),
    ending="""
    Example:
      agent index --repo ./target

    Other corpora, in a store that a team shares:
      agent index --corpus code,docs,intent,history \\
          --store qdrant://HOST:6333
    """,
)
@options.base
@options.corpora
@options.choice(
    "--intents", ("templates", "llm"), "templates", "Who writes intents: llm costs --max-cost."
)
@options.path("--symbols", "Write symbols and their intents there, as JSON lines.")
@options.flag("--fresh", "Remove this project's entries of these corpora from the store first.")
@options.flag("--forget", "Forget the accepted patches instead; a store keeps theirs.")
@options.flag("--list show", "List the store's collections instead.")
@options.text("--drop", "NAME", "Drop a collection of the store instead.")
@options.as_json
@options.quiet
def index_command(flags: Mapping[str, Any], **given: Any) -> int:
    """Build or refresh the cache of chunks and commits, and the vectors of other corpora."""
    if given["show"] or given["drop"] is not None or given["forget"]:
        return _manage(given, flags)
    return _index(given, flags)


def _index(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Fill the caches, and the store for the named corpora, and print the counts."""
    from agent.search import Label
    from agent.wiring import fill_history, fill_index, missing_models

    settings = common.load_settings(flags, repository=given["repo"])
    labels = requested_corpora(given, settings, flags)
    settings.cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not os.access(settings.cache_dir, os.W_OK):
        raise ConfigurationError(
            f"cache folder {settings.cache_dir} cannot be written: set PATCHSHOT_CACHE_DIR to one "
            "that can"
        )
    reports: tuple[CorpusReport, ...] = ()
    written, url = None, ""
    with common.reporting(quiet=given["quiet"], warn=True) as reporter:
        snapshot = open_project(given, settings, reporter, labels)
        started = time.perf_counter()
        for note in missing_models(settings):
            reporter(Notice(note, "warning"))
        summary = fill_index(settings, snapshot, reporter)
        commits = fill_history(settings, snapshot, reporter)
        if labels != (Label.CODE,) or given["corpus"]:
            work = _fill(settings, snapshot, labels, given, reporter)
            reports, written, url = asyncio.run(work)
        seconds = time.perf_counter() - started
    facts: dict[str, Any] = {
        **asdict(summary),
        "commits": commits,
        "seconds": round(seconds, 3),
        "commit": snapshot.commit,
        "cache": str(settings.cache_dir / "index.sqlite"),
    }
    lines = [
        f"[code]     {counted(summary.files, 'file')}, {counted(summary.chunks, 'chunk')} "
        f"({summary.files - summary.built:,} files were known), {counted(commits, 'commit')}"
    ]
    if reports:
        facts["store"], facts["intents"] = url, None
        facts["corpora"] = {one.label.value: _report_as_json(one) for one in reports}
    if written is not None:
        facts["intents"] = {**asdict(written), "error": str(written.error or "")}
        lines.append(
            f"intents    {counted(written.written, 'symbol')} written, "
            f"{written.known:,} were known, {written.failed:,} failed, {written.left:,} left"
        )
    place = f"vectors in {url}" if url else f"kept in {settings.cache_dir}"
    lines += [*map(_report_in_words, reports), f"in {seconds:.2f} s; {place}", ""]
    common.print_result(facts, "\n".join(lines), json=given["json"])
    if written is not None and written.error is not None:
        say(f"agent: {written.error}; what was written is kept: the same command goes on from here")
        return written.error.status.exit_code
    return 0


async def _fill(
    settings: Settings,
    snapshot: Snapshot,
    labels: tuple[Label, ...],
    given: Mapping[str, Any],
    reporter: Reporter,
) -> tuple[tuple[CorpusReport, ...], IntentCounts | None, str]:
    """Store the vectors of the corpora; write and read intents as the options ask."""
    from agent.search import Label, read_symbols, write_symbols
    from agent.wiring.search import intent_file, open_intent_writer, open_pool

    others = tuple(label for label in labels if label is not Label.CODE)
    by_model, target = given["intents"] == "llm", given["symbols"]
    async with open_pool(settings, snapshot, reporter, others, filling=True) as pool:
        written = None
        if Label.INTENT in labels and (by_model or target):
            symbols = await asyncio.to_thread(read_symbols, snapshot, pool.index)
            if by_model and symbols:
                async with open_intent_writer(settings, snapshot, reporter) as writer:
                    written = await writer.write(symbols)
            if target is not None:
                count = write_symbols(target, symbols, intent_file(settings, snapshot))
                reporter(Notice(f"{target}: {counted(count, 'symbol')} written"))
        vectors = pool.vectors
        if given["fresh"] and vectors is not None:
            for label in others:
                await asyncio.to_thread(vectors.forget, label)
        return await pool.fill(), written, "" if vectors is None else vectors.store.url


def _report_as_json(report: CorpusReport) -> dict[str, Any]:
    names = ("passages", "embedded", "known", "failed", "complete", "note")
    return {name: getattr(report, name) for name in names}


def _report_in_words(report: CorpusReport) -> str:
    label = f"{f'[{report.label.value}]':<10}"
    if not report.known and not report.embedded:
        return f"{label} nothing indexed: {report.note}"
    counts = f"{counted(report.embedded, 'text')} embedded, {report.known:,} were known"
    note = f"; INCOMPLETE: {report.note}" if report.note else ""
    return f"{label} {counted(report.passages, 'passage')}: {counts}{note}"


def _manage(given: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Handle `--list`, `--drop NAME` and `--forget`."""
    from agent.wiring.search import memory_of, open_vector_store

    names = {"show": "--list", "drop": "--drop", "forget": "--forget", "fresh": "--fresh"}
    together = [option for name, option in names.items() if given[name] not in (None, False)]
    if len(together) > 1:
        raise ConfigurationError(f"{' and '.join(together)} do not go together; give one of them")
    settings, drop = common.load_settings(flags, repository=given["repo"]), given["drop"]
    with common.reporting(quiet=given["quiet"], warn=True) as reporter:
        if given["forget"]:
            count = memory_of(settings, open_project(given, settings, reporter)).forget()
            patches = counted(count, "patch", "patches")
            advice = "a store keeps its entries until `agent index --corpus memory --fresh`"
            common.write_stdout(f"forgot {patches} of this project; {advice}\n")
            return 0
        with open_vector_store(settings, reporter) as store:
            infos, url = store.collections(), store.url
            if drop is not None:
                if drop not in {info.name for info in infos}:
                    raise ConfigurationError(
                        f"--drop {drop}: no such collection in {url} (see --list)"
                    )
                store.drop(drop)
                common.write_stdout(f"dropped {drop} of {url}\n")
                return 0
    lines = [
        f"{info.name:<48} {counted(info.entries, 'entry', 'entries'):>17}"
        f" of {info.dimension} dimensions, {info.model}"
        for info in infos
    ]
    lines += [f"{counted(len(infos), 'collection')} in {url}", ""]
    facts = {"store": url, "collections": [asdict(info) for info in infos]}
    common.print_result(facts, "\n".join(lines), json=given["json"])
    return 0
