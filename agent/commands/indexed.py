"""What `agent index --corpus` prints: each corpus with its counts, whole or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agent.commands.precomputed_labels import UNKNOWN_MODEL

if TYPE_CHECKING:
    from agent.corpora.filling import CorpusReport
    from agent.corpora.intent_writing import Written
    from agent.protocols import Snapshot
    from agent.retrieval.index import IndexSummary
    from agent.stores.base import CollectionInfo


def index_as_json(
    snapshot: Snapshot,
    code: tuple[IndexSummary, int],
    reports: Sequence[CorpusReport],
    written: Written | None,
    url: str,
    seconds: float,
) -> dict[str, Any]:
    """What `agent index --corpus` came to."""
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
    written: Written | None,
    url: str,
    seconds: float,
) -> str:
    """The same, a line a corpus."""
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
    """The collections of a store, a line each."""
    lines = [
        f"{info.name:<48} {counted(info.entries, 'entry', 'entries'):>17}"
        f" of {info.dimension} dimensions, {model_of(info) or 'model not said'}"
        for info in known
    ]
    return "".join(
        f"{line}\n" for line in (*lines, f"{counted(len(known), 'collection')} in {url}")
    )


def model_of(info: CollectionInfo) -> str | None:
    """The model of a collection; None where an import did not say it."""
    return None if info.model == UNKNOWN_MODEL else info.model


def counted(number: int, one: str, many: str = "") -> str:
    """`1 passage`, `2 passages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
