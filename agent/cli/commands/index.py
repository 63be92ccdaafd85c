"""`agent index`: fill the caches of code and commits, and the vector store of other corpora."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from agent.cli.commands.common import counted, guarded, load_settings, print_value, write_stdout
from agent.cli.commands.precomputed_labels import UNKNOWN_MODEL
from agent.cli.commands.retrieval import (
    CODE_ALONE,
    InspectRequest,
    PoolRequest,
    beyond_code,
    open_code,
    open_settings,
    open_snapshot,
    requested_corpora,
    say_shallow,
    warning,
)
from agent.cli.options import command as declare
from agent.cli.options import (
    corpus_options,
    json_option,
    path_option,
    quiet_option,
    repo_options,
)
from agent.errors import ConfigurationError
from agent.shared.terminal import say
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.retrieval.index import IndexSummary
    from agent.search import CorpusReport, IntentCounts, Label, Symbol
    from agent.search.stores import CollectionInfo
    from agent.settings import Settings
    from agent.types.protocols import Reporter, Snapshot

_STORE_KEEPS = "a store keeps its entries until `agent index --corpus memory --fresh`"


def index(
    request: InspectRequest, flags: Mapping[str, Any], asked: PoolRequest = CODE_ALONE
) -> int:
    """Fill the caches, and the store for the named corpora, and print the counts."""
    return guarded(lambda: _index(request, flags, asked), flags=flags)


def _index(request: InspectRequest, flags: Mapping[str, Any], asked: PoolRequest) -> int:
    from agent.wiring import index_path

    if asked.show or asked.drop is not None or asked.forget:
        return manage(request, flags, asked)
    settings = open_settings(request, flags)
    if beyond_code(settings, flags, asked):
        labels = requested_corpora(settings, flags, asked)
        return _index_corpora(request, settings, labels, asked)

    with warning(quiet=request.quiet) as reporter:
        snapshot = open_code(request, settings, reporter)
        refuse_unkept(settings)
        started = time.perf_counter()
        summary, commits = _fill_code(settings, snapshot, reporter)
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
        write_stdout(line)
    return 0


def _index_corpora(
    request: InspectRequest, settings: Settings, labels: tuple[Label, ...], asked: PoolRequest
) -> int:
    """Fill the caches and the store, and print the counts of each corpus."""
    refuse_unkept(settings)
    with warning(quiet=request.quiet) as reporter:
        snapshot = open_snapshot(request, settings, reporter)
        say_shallow(request, labels, reporter)
        started = time.perf_counter()
        code = _fill_code(settings, snapshot, reporter)
        work = _fill(settings, snapshot, labels, asked, reporter)
        reports, written, url = asyncio.run(work)
        seconds = time.perf_counter() - started
    if request.json:
        print_value(index_as_json(snapshot, code, reports, written, url, seconds))
    else:
        write_stdout(index_in_words(code, reports, written, url, seconds))
    if written is not None and written.error is not None:
        say(f"agent: {written.error}; what was written is kept: the same command goes on from here")
        return written.error.status.exit_code
    return 0


def manage(request: InspectRequest, flags: Mapping[str, Any], asked: PoolRequest) -> int:
    """Handle `--list`, `--drop NAME` and `--forget`."""
    from agent.wiring.search import StoreUse, memory_of, open_vector_store

    _refuse_together(asked)
    settings = load_settings(flags, repository=request.repo)
    with warning(quiet=request.quiet) as reporter:
        if asked.forget:
            count = memory_of(settings, open_snapshot(request, settings, reporter)).forget()
            said = counted(count, "patch", "patches")
            write_stdout(f"forgot {said} of this project; {_STORE_KEEPS}\n")
            return 0
        with open_vector_store(settings, reporter, StoreUse.MANAGE) as store:
            known = store.collections()
            if asked.drop is not None:
                if asked.drop not in {info.name for info in known}:
                    raise ConfigurationError(
                        f"--drop {asked.drop}: no such collection in {store.url} (see --list)"
                    )
                store.drop(asked.drop)
                write_stdout(f"dropped {asked.drop} of {store.url}\n")
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
        write_stdout(collections_in_words(url, known))
    return 0


def _refuse_together(asked: PoolRequest) -> None:
    """Raise ConfigurationError for options that exclude each other."""
    given = {
        "--list": asked.show,
        "--drop": asked.drop is not None,
        "--forget": asked.forget,
        "--fresh": asked.fresh,
    }
    named = [name for name, there in given.items() if there]
    if len(named) > 1:
        raise ConfigurationError(f"{' and '.join(named)} do not go together; give one of them")


async def _fill(
    settings: Settings,
    snapshot: Snapshot,
    labels: tuple[Label, ...],
    asked: PoolRequest,
    reporter: Reporter,
) -> tuple[tuple[CorpusReport, ...], IntentCounts | None, str]:
    from agent.search import Label, read_symbols, read_symbols_file, write_symbols
    from agent.wiring.search import StoreUse, intent_file, open_intent_writer, open_pool

    others = tuple(label for label in labels if label is not Label.CODE)
    use = StoreUse.MANAGE if asked.fresh else StoreUse.FILL
    async with open_pool(settings, snapshot, reporter, others, use=use) as pool:
        written = None
        symbols: tuple[Symbol, ...] = ()
        if Label.INTENT in labels and (asked.by_model or asked.symbols or asked.symbols_from):
            symbols = await asyncio.to_thread(read_symbols, snapshot, pool.parts.index)
        book = intent_file(settings, snapshot)
        if asked.symbols_from is not None:
            new, known = read_symbols_file(asked.symbols_from, symbols, book)
            told = f"intents of {counted(new, 'symbol')} read, {known:,} were known"
            reporter(Notice(f"{asked.symbols_from}: {told}"))
        if asked.by_model and symbols:
            async with open_intent_writer(settings, snapshot, reporter) as writer:
                written = await writer.write(symbols)
        vectors = pool.parts.vectors
        if asked.symbols is not None:
            count = write_symbols(asked.symbols, symbols, book)
            reporter(Notice(f"{asked.symbols}: {counted(count, 'symbol')} written"))
        if asked.fresh and vectors is not None:
            for label in others:
                await asyncio.to_thread(vectors.forget, label)
        reports = await pool.fill()
        return reports, written, "" if vectors is None else vectors.store.url


def _fill_code(
    settings: Settings, snapshot: Snapshot, reporter: Reporter
) -> tuple[IndexSummary, int]:
    from agent.wiring import fill_history, fill_index, missing_models

    for note in missing_models(settings):
        reporter(Notice(note, "warning"))
    return fill_index(settings, snapshot, reporter), fill_history(settings, snapshot, reporter)


def refuse_unkept(settings: Settings) -> None:
    """Raise ConfigurationError if the cache folder, or a cache in it, cannot be written.

    A search works without a cache, but an index that cannot be saved is useless.
    """
    from agent.retrieval.history import history_path
    from agent.wiring import index_path

    index = index_path(settings)
    try:
        index.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=index.parent):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"cache folder {index.parent} cannot be written ({error.strerror or error}): "
            "set PATCHSHOT_CACHE_DIR to one that can"
        ) from None
    for path in (index, history_path(index)):
        if path is not None and path.exists() and not os.access(path, os.W_OK):
            raise ConfigurationError(
                f"cache {path} cannot be written: make it writable, or set PATCHSHOT_CACHE_DIR "
                "to another folder"
            )


def index_as_json(
    snapshot: Snapshot,
    code: tuple[IndexSummary, int],
    reports: Sequence[CorpusReport],
    written: IntentCounts | None,
    url: str,
    seconds: float,
) -> dict[str, Any]:
    """Return the result of `agent index --corpus` as JSON values."""
    summary, commits = code
    intents = None
    if written is not None:
        intents = {
            "known": written.known,
            "written": written.written,
            "failed": written.failed,
            "left": written.left,
            "error": "" if written.error is None else str(written.error),
        }
    return {
        **asdict(summary),
        "commits": commits,
        "seconds": round(seconds, 3),
        "commit": snapshot.commit,
        "store": url,
        "intents": intents,
        "corpora": {
            report.label.value: {
                "passages": report.passages,
                "embedded": report.filled.embedded if report.filled else 0,
                "known": report.filled.known if report.filled else 0,
                "failed": report.filled.failed if report.filled else 0,
                "complete": report.complete,
                "note": report.note,
            }
            for report in reports
        },
    }


def index_in_words(
    code: tuple[IndexSummary, int],
    reports: Sequence[CorpusReport],
    written: IntentCounts | None,
    url: str,
    seconds: float,
) -> str:
    """Return the result of `agent index --corpus` as text, one line for each corpus."""
    summary, commits = code
    known = summary.files - summary.built
    lines = [
        f"[code]     {counted(summary.files, 'file')}, {counted(summary.chunks, 'chunk')} "
        f"({known:,} were known), {counted(commits, 'commit')}"
    ]
    if written is not None:
        lines.append(
            f"intents    {counted(written.written, 'symbol')} written, "
            f"{written.known:,} were known, {written.failed:,} failed, {written.left:,} left"
        )
    for report in reports:
        label = f"[{report.label.value}]"
        if report.filled is None:
            lines.append(f"{label:<10} nothing indexed: {report.note}")
            continue
        filled = report.filled
        counts = f"{counted(filled.embedded, 'text')} embedded, {filled.known:,} were known"
        note = f"; INCOMPLETE: {report.note}" if report.note else ""
        lines.append(f"{label:<10} {counted(report.passages, 'passage')}: {counts}{note}")
    lines.append(f"in {seconds:.2f} s; vectors in {url or 'no store'}")
    return "".join(f"{line}\n" for line in lines)


def collections_in_words(url: str, known: Sequence[CollectionInfo]) -> str:
    """List the collections of a store, one line each."""
    lines = [
        f"{info.name:<48} {counted(info.entries, 'entry', 'entries'):>17}"
        f" of {info.dimension} dimensions, {model_of(info) or 'model not said'}"
        for info in known
    ]
    return "".join(
        f"{line}\n" for line in (*lines, f"{counted(len(known), 'collection')} in {url}")
    )


def model_of(info: CollectionInfo) -> str | None:
    """Return the model of a collection, None if the import did not name it."""
    return None if info.model == UNKNOWN_MODEL else info.model


@declare(
    "index",
    settings=(
        "embed",
        "store",
        "max_cost",
    ),
    ending="""
    Example:
      agent index --repo ./target

    Other corpora too, in a store that a team shares:
      agent index --corpus code,docs,intent,history \\
          --store postgresql://HOST/DATABASE

    Vectors of another program:
      agent index --precomputed ./vectors --made-by MODEL
    """,
)
@repo_options
@corpus_options
@path_option("--symbols", help="Write symbols and their intents there, as JSON lines.")
@path_option("--read-symbols", help="Take the intents of such a file, in the place of templates'.")
@click.option(
    "--fresh", is_flag=True,
    help="Remove this project's entries of these corpora from the store first.",
)  # fmt: skip
@click.option(
    "--forget", is_flag=True, help="Forget the accepted patches instead; a store keeps theirs."
)
@click.option("--list", "show", is_flag=True, help="List the store's collections instead.")
@click.option("--drop", metavar="NAME", help="Drop a collection of the store instead.")
@click.option(
    "--precomputed", metavar="FOLDER", multiple=True,
    help="Put this folder's vectors (one JSON array a file) into the store instead; no repository "
    "is read.",
)  # fmt: skip
@click.option(
    "--collection", metavar="NAME",
    help="Where in the store they go (the folder's name; a digest is added where that cannot be "
    "kept).",
)  # fmt: skip
@click.option(
    "--made-by", metavar="MODEL",
    help="The model that computed them; queries in words by another model are refused then.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True,
    help="Read the folder and say what would be put there, and what is there; write nothing.",
)  # fmt: skip
@json_option
@quiet_option
def command(flags: Mapping[str, Any], **given: Any) -> int:
    """Build or refresh the cache of chunks and commits, and the vectors of other corpora."""
    alone = (given["collection"], given["made_by"])
    if given["precomputed"] or given["dry_run"] or any(one is not None for one in alone):
        from agent.cli.commands.precomputed import import_by_options

        return import_by_options(given, flags)
    request = InspectRequest(
        None, **{name: given[name] for name in ("repo", "commit", "dirty", "json", "quiet")}
    )
    asked = PoolRequest(
        corpora=given["corpus"],
        by_model=given["intents"] == "llm",
        symbols=given["symbols"],
        symbols_from=given["read_symbols"],
        **{name: given[name] for name in ("fresh", "forget", "show", "drop")},
    )
    return index(request, flags, asked)
