"""Render the report as text: resolved instances, errors, and how often VERIFIED was right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.evaluation.patches.report import Confusion, RunReport, ShareWithInterval

_MOST_LINES = 40
_REASON = 140
_MARKS = {"resolved": "✓", "unresolved": "✗", "not-applied": "✗", "empty-patch": "–", "error": "!"}


def render(report: RunReport) -> str:
    """Return the report as text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: RunReport) -> Iterator[str]:
    yield (
        f"{report.submitted_instances} predictions for {report.total_instances} instances: "
        f"{report.resolved_instances} resolved, {report.unresolved_instances} unresolved, "
        f"{len(report.not_applied_ids)} did not apply, "
        f"{report.empty_patch_instances} without a patch, "
        f"{report.error_instances - len(report.not_applied_ids)} could not be evaluated"
        + (f", {len(report.pending_ids)} still to be done" if report.pending_ids else "")
    )
    if report.resolved_share.total:
        yield f"resolved: {in_words(report.resolved_share)} of all that could be evaluated"
    yield from _checked(report)
    yield ""
    yield from _instances(report)
    if report.confusion is not None:
        yield ""
        yield from _verdicts(report.confusion)
    if report.problems:
        yield ""
        yield f"entries that do not count ({len(report.problems)}):"
        yield from (f"  {p.place}: {p.reason}" for p in report.problems[:_MOST_LINES])
        yield from _more(len(report.problems))


def _checked(report: RunReport) -> Iterator[str]:
    """Yield the findings of `--check-dataset`, if it was given."""
    checked = sum(entry.check is not None for entry in report.instances.values())
    if checked:
        bad = len(report.invalid_ids)
        found = f"{bad} do not hold what they say" if bad else "all hold what they say"
        yield f"rows checked with --check-dataset: {checked}, {found}"


def _instances(report: RunReport) -> Iterator[str]:
    shown = list(report.instances.items())[:_MOST_LINES]
    width = max((len(name) for name, _ in shown), default=0)
    for name, entry in shown:
        verdict = f" [{entry.own.verdict or entry.own.status}]" if entry.own else ""
        reason = entry.reason if len(entry.reason) <= _REASON else entry.reason[:_REASON] + "…"
        yield f"{_MARKS[entry.outcome]} {name.ljust(width)}  {entry.outcome}{verdict}  {reason}"
        if entry.check and entry.check.problems:
            yield f"  {' ' * width}  the row itself: {'; '.join(entry.check.problems)}"
    yield from _more(len(report.instances))


def _more(total: int) -> Iterator[str]:
    if total > _MOST_LINES:
        yield f"  and {total - _MOST_LINES} more (the report has all)"


def _verdicts(found: Confusion) -> Iterator[str]:
    columns = [
        c for c in ("resolved", "unresolved", "not-applied", "empty-patch", "error")
        if any(row.get(c) for row in found.counts.values())
    ]  # fmt: skip
    rows = [[row, *(str(counts[c]) for c in columns)] for row, counts in found.counts.items()]
    yield from _table(["our verdict", *columns], rows)
    yield f"VERIFIED and resolved: {in_words(found.verified_right)}"
    yield f"accepted and resolved: {in_words(found.accepted_right)}"
    yield f"resolved and VERIFIED: {in_words(found.resolved_verified)}"
    if found.other_patches:
        yield f"{found.other_patches} verdicts are of other patches than these and are left out"


def in_words(share: ShareWithInterval) -> str:
    """Return the share as text, such as "3 of 4 (75.0%, 95% interval 30.1–95.4%)"."""
    if share.share is None or share.low is None or share.high is None:
        return f"{share.count} of {share.total}"
    low, high = 100 * share.low, 100 * share.high
    return (
        f"{share.count} of {share.total} ({100 * share.share:.1f}%, "
        f"95% interval {low:.1f}–{high:.1f}%)"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for cells in (head, ["-" * width for width in widths], *rows):
        first, *rest = (
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        yield "  ".join((first, *rest)).rstrip()
