"""Render the figures as Markdown tables, with the presets side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from agent.evaluation.retrieval.metrics import (
    EDIT_RECALL,
    METRICS,
    RECALL,
    GroupSummary,
    Interval,
    PresetReport,
)
from agent.evaluation.retrieval.runner import RetrievalEvaluation, Skipped
from agent.shared.terminal import inert

# The breakdowns that show where a preset is weak. `--json` has the others.
_BREAKDOWN = ("file @1", "file @5", "function @10", RECALL, EDIT_RECALL)
_MAX_REASONS = 20


def render(evaluation: RetrievalEvaluation) -> str:
    """Return the tables: metrics with intervals, breakdowns, and reasons for skipping."""
    parts = [_heading(evaluation)]
    reports = evaluation.reports
    if reports:
        parts.append(_metrics(reports))
        parts.append(_breakdown("kind of query", reports, lambda report: report.by_kind))
        parts.append(_breakdown("project", reports, lambda report: report.by_project))
    if evaluation.embedders:
        parts.append(_embedders(evaluation.embedders))
    if evaluation.skipped:
        parts.append("".join(_reasons(evaluation.skipped)))
    return "\n".join(parts)


def _embedders(names: Mapping[str, str | None]) -> str:
    said = (f"{preset} by {name or 'none'}" for preset, name in names.items())
    return f"Embedded: {inert(', '.join(said), kept='')}.\n"


def _heading(evaluation: RetrievalEvaluation) -> str:
    projects = len(evaluation.reports[0].by_project) if evaluation.reports else 0
    absent = f"; {evaluation.absent:,} named functions not there" if evaluation.absent else ""
    return (
        f"Split {evaluation.split}: {evaluation.scored:,} instances of {projects} projects scored, "
        f"{evaluation.unscored:,} change no existing function outside tests, "
        f"{len(evaluation.skipped):,} skipped{absent}.\n"
    )


def _metrics(reports: Sequence[PresetReport]) -> str:
    rows = [
        [name, *(_with_interval(report.overall.metrics.get(name)) for report in reports)]
        for name in dict.fromkeys((*METRICS, *(n for r in reports for n in r.overall.metrics)))
    ]
    rows.append(["seconds, median", *(f"{report.seconds_median:.2f}" for report in reports)])
    rows.append(["seconds, 95%", *(f"{report.seconds_p95:.2f}" for report in reports)])
    rows.append(["context tokens, median", *(f"{r.context_tokens_median:,.0f}" for r in reports)])
    needed = (r.tokens_needed_median for r in reports)
    shown = ("more" if tokens is None else f"{tokens:,.0f}" for tokens in needed)
    rows.append(["tokens until all edits, median", *shown])
    return _table(["% (95% interval)", *(report.preset for report in reports)], rows)


def _with_interval(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    return f"{interval.mean:.1%} ({interval.low:.0%}–{interval.high:.0%})".replace("%", "")


def _breakdown(
    title: str,
    reports: Sequence[PresetReport],
    groups: Callable[[PresetReport], Mapping[str, GroupSummary]],
) -> str:
    """Return a table with a row for each group; a cell has the values of all presets."""
    rows = []
    for name, first in groups(reports[0]).items():
        summaries = [groups(report)[name] for report in reports]
        cells = (" / ".join(_plain(s.metrics.get(m)) for s in summaries) for m in _BREAKDOWN)
        rows.append([name, f"{first.instances:,}", *cells])
    heads = " / ".join(report.preset for report in reports)
    label = f"{title} ({heads})" if len(reports) > 1 else title
    return _table([label, "n", *_BREAKDOWN], rows)


def _plain(interval: Interval | None) -> str:
    return "–" if interval is None else f"{100 * interval.mean:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(3, *map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "".join(_line(cells, widths) for cells in (head, rule, *rows))


def _line(cells: Iterable[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if number else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |\n"


def _reasons(skipped: Sequence[Skipped]) -> Iterator[str]:
    """Yield the reasons for skipping, the most frequent first."""
    counts = Counter(one.reason for one in skipped)
    first = {one.reason: one.instance_id for one in reversed(skipped)}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    yield f"Skipped ({len(skipped):,}):\n"
    for reason, count in ordered[:_MAX_REASONS]:
        yield inert(f"- {count:,} × {reason} (first: {first[reason]})", kept="") + "\n"
    if len(ordered) > _MAX_REASONS:
        yield f"- and {len(ordered) - _MAX_REASONS:,} further reasons (--json has all)\n"
