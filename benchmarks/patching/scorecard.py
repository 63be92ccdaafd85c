"""Applies every case and counts what came of it."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.patching import apply_proposal, parse_reply
from agent.types import AppliedPatch, ParseFailure
from benchmarks.patching.cases import Attempt, Case, Outcome, outcome
from benchmarks.patching.real_replies import aider_cases
from benchmarks.patching.synthetic import history_cases
from benchmarks.patching.written import written_cases
from tests.support.memory_files import MemoryFiles

CORPORA = ("own", "aider", "histories")

_ORDER = (Outcome.RIGHT, Outcome.WRONG, Outcome.REFUSED, Outcome.MISSED, Outcome.UNJUDGED)


@dataclass(frozen=True, slots=True)
class Row:
    """What the applier made of one case."""

    case: Case
    attempt: Attempt
    outcome: Outcome


def all_cases(
    corpora: Path | None, changes: int, each: int, seed: int, chosen: Collection[str]
) -> Iterator[Case]:
    """Every chosen corpus that is there, in a fixed order; without `corpora` our own alone."""
    if "own" in chosen:
        yield from written_cases(seed)
    if corpora and "aider" in chosen:
        yield from aider_cases(corpora)
    if corpora and "histories" in chosen:
        yield from history_cases(corpora, changes, each, seed)


def run(cases: Iterable[Case]) -> list[Row]:
    """Try every case. Exceptions are not caught: they are findings."""
    rows = []
    for case in cases:
        attempt = apply(case)
        rows.append(Row(case, attempt, outcome(case, attempt)))
    return rows


def apply(case: Case) -> Attempt:
    """Parse and apply as the command does."""
    proposal = parse_reply(case.reply, finish_reason=case.finish_reason)
    if isinstance(proposal, ParseFailure):
        return Attempt(None, reason=f"{proposal.kind}: {proposal.reason}")
    applied = apply_proposal(proposal, MemoryFiles(case.files), allow=("*",))
    if not isinstance(applied, AppliedPatch):
        return Attempt(None, reader=proposal.reader, reason=applied.reason)
    changed = {change.path: change.after for change in applied.changes}
    tiers = (
        *(str(edit.tier) for edit in applied.edits),
        *(f"repair: {repair.name}" for repair in applied.repairs),
    )
    return Attempt(changed, tiers, proposal.reader)


def report(rows: Sequence[Row]) -> str:
    """The scorecard as Markdown."""
    tiers = Counter(tier for row in rows for tier in row.attempt.tiers)
    readers = Counter(row.attempt.reader for row in rows if row.attempt.changed is not None)
    parts = [
        _table(rows, lambda row: row.case.corpus, "corpus"),
        _table(rows, lambda row: f"{row.case.corpus}: {row.case.shape}", "corpus and shape"),
        _table(rows, lambda row: f"{row.case.corpus}: {row.case.kind}", "corpus and kind"),
        _histogram("tier", tiers),
        _histogram("reader", readers),
    ]
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Row], key: Callable[[Row], str], title: str) -> str:
    counts: dict[str, Counter[Outcome]] = {}
    for row in rows:
        counts.setdefault(key(row), Counter())[row.outcome] += 1
    lines = [f"| {title} | cases | {' | '.join(_ORDER)} |", "|---|" + "--:|" * (len(_ORDER) + 1)]
    for name, count in counts.items():
        cells = " | ".join(str(count[one]) for one in _ORDER)
        lines.append(f"| {name} | {count.total()} | {cells} |")
    return "\n".join(lines)


def _histogram(title: str, counts: Mapping[str, int]) -> str:
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    rows = (f"| {name} | {count} |" for name, count in ranked)
    return "\n".join([f"| {title} | count |", "|---|--:|", *rows])


def explain(row: Row, width: int = 3000) -> str:
    """A case, to be read by a person: the reply, what was done, and what is missing."""
    parts = [
        f"=== {row.case.id} [{row.case.kind}, {row.case.shape}] {row.outcome}"
        f" (wanted: {row.case.wanted})",
        f"reader {row.attempt.reader}, tiers {', '.join(row.attempt.tiers)} {row.attempt.reason}",
        "--- reply\n" + row.case.reply[:width],
    ]
    for path, content in (row.attempt.changed or {}).items():
        changes = _difference(row.case.files.get(path), content)
        parts.append(f"--- {path}: what was done\n{changes[:width]}")
        if row.case.after is not None and row.case.after.get(path) != content:
            rest = _difference(content, row.case.after.get(path))
            parts.append(f"--- {path}: from there to the truth\n{rest[:width]}")
    return "\n".join(parts) + "\n"


def _difference(old: bytes | None, new: bytes | None) -> str:
    a, b = (
        (text or b"").decode("utf-8", "replace").splitlines(keepends=True) for text in (old, new)
    )
    return "".join(difflib.unified_diff(a, b, "old", "new"))
