"""Runs every case through every applier and counts what came of it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.patching.appliers import apply_git, apply_ours, apply_patch_fuzz, exact_only
from benchmarks.patching.cases import Attempt, Case, Outcome, digest, outcome
from benchmarks.patching.real_replies import (
    AIDER,
    GPT_ENGINEER,
    LLM_PATCH,
    aider_cases,
    gpt_engineer_cases,
    llm_patch_cases,
)
from benchmarks.patching.repositories import find_repository
from benchmarks.patching.reviewing import Reviews, load_reviews, reviewed
from benchmarks.patching.synthetic import PROJECTS, history_cases
from benchmarks.patching.written import written_cases

OURS, EXACT, GIT, PATCH = "ours", "exact only", "git apply", "patch --fuzz=5"
_ORDER = (Outcome.RIGHT, Outcome.WRONG, Outcome.REFUSED, Outcome.MISSED, Outcome.UNJUDGED)


@dataclass(frozen=True, slots=True)
class Row:
    """What one applier made of one case."""

    case: Case
    applier: str
    attempt: Attempt
    outcome: Outcome


@dataclass(slots=True)
class Score:
    """All rows of a run; `seconds` is the time of our applier alone."""

    rows: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def of(self, applier: str) -> list[Row]:
        """The rows of one applier."""
        return [row for row in self.rows if row.applier == applier]

    def wrong(self) -> list[Row]:
        """What ours applied wrongly: must be empty."""
        return [row for row in self.of(OURS) if row.outcome is Outcome.WRONG]


CORPORA = ("own", "gpt-engineer", "llm-patch", "aider", "histories")


def all_cases(
    corpora: Path, changes: int, each: int, seed: int, chosen: Collection[str] = CORPORA
) -> Iterator[Case]:
    """Every chosen corpus that is there, in a fixed order."""
    sources: Mapping[str, Callable[[], Iterator[Case]]] = {
        "own": written_cases,
        "gpt-engineer": lambda: gpt_engineer_cases(corpora),
        "llm-patch": lambda: llm_patch_cases(corpora),
        "aider": lambda: aider_cases(corpora),
        "histories": lambda: history_cases(corpora, changes, each, seed),
    }
    for name in CORPORA:
        if name in chosen:
            yield from sources[name]()


def missing_corpora(corpora: Path) -> list[str]:
    """Repositories that were not fetched."""
    wanted = (AIDER, LLM_PATCH, GPT_ENGINEER, *PROJECTS)
    return [name for name in wanted if find_repository(corpora, name) is None]


def run(
    cases: Iterable[Case], *, foreign: bool = True, reviews: Reviews | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Score:  # fmt: skip
    """Try every applier on every case. Exceptions of ours are not caught: they are findings."""
    score = Score()
    known = load_reviews() if reviews is None else reviews
    for number, case in enumerate(cases, start=1):
        started = time.perf_counter()
        ours = apply_ours(case)
        score.seconds += time.perf_counter() - started
        tried: list[tuple[str, Attempt | None]] = [(OURS, ours), (EXACT, exact_only(ours))]
        if foreign:
            tried += [(GIT, apply_git(case)), (PATCH, apply_patch_fuzz(case))]
        for name, attempt in tried:
            if attempt is not None:
                judged = reviewed(case, attempt, outcome(case, attempt), known)
                score.rows.append(Row(case, name, attempt, judged))
        progress(number)
    return score


# ------------------------------------------------------------------------------------------ tables


def table(rows: Sequence[Row], key: Callable[[Row], str], title: str) -> str:
    """Groups down, appliers across; right/wrong/refused/wrongly refused/unjudged."""
    appliers = list(dict.fromkeys(row.applier for row in rows))
    counts: dict[str, dict[str, Counter[Outcome]]] = {}
    for row in rows:
        group = counts.setdefault(key(row), {name: Counter() for name in appliers})
        group[row.applier][row.outcome] += 1
    lines = [
        f"| {title} | cases | " + " | ".join(appliers) + " |",
        "|---|---:|" + "---:|" * len(appliers),
    ]
    for name, group in counts.items():
        total = max(sum(count.values()) for count in group.values())
        cells = (_cell(group[applier]) for applier in appliers)
        lines.append(f"| {name} | {total} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(count: Counter[Outcome]) -> str:
    return " / ".join(str(count[one]) for one in _ORDER) if count else "-"


def report(score: Score) -> str:
    """The scorecard as Markdown."""
    ours = score.of(OURS)
    tiers = Counter(tier for row in ours for tier in row.attempt.tiers)
    readers = Counter(row.attempt.reader for row in ours if row.attempt.changed is not None)
    parts = [
        f"Each cell: {' / '.join(_ORDER)}.\n",
        table(score.rows, lambda row: row.case.corpus, "corpus"),
        table(score.rows, lambda row: f"{row.case.corpus}: {row.case.shape}", "corpus and shape"),
        table(score.rows, lambda row: f"{row.case.corpus}: {row.case.kind}", "corpus and kind"),
        _histogram("tier", tiers),
        _histogram("reader", readers),
        f"ours: {len(ours)} cases in {score.seconds:.1f} s; wrong: {len(score.wrong())}",
    ]
    if score.missing:
        parts.append("not fetched: " + ", ".join(score.missing))
    return "\n\n".join(parts) + "\n"


def _histogram(title: str, counts: Mapping[str, int]) -> str:
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    rows = (f"| {name} | {count} |" for name, count in ranked)
    return "\n".join([f"| {title} | edits |" if title == "tier" else f"| {title} | replies |",
                      "|---|---:|", *rows])  # fmt: skip


def explain(row: Row, width: int = 3000) -> str:
    """A case that went wrong, to be read by a person."""
    parts = [
        f"=== {row.case.id} [{row.case.kind}, {row.case.shape}] {row.outcome}"
        f" (wanted: {row.case.wanted}; result {digest(row.attempt.changed)})",
        f"reader {row.attempt.reader}, tiers {', '.join(row.attempt.tiers)} {row.attempt.reason}",
        "--- reply\n" + row.case.reply[:width],
    ]
    for path, content in (row.attempt.changed or {}).items():
        before = row.case.files.get(path)
        parts.append(f"--- {path}: what was done\n{_difference(before, content)[:width]}")
        wanted = (row.case.after or {}).get(path)
        if row.case.after is not None and wanted != content:
            parts.append(
                f"--- {path}: from there to the truth\n{_difference(content, wanted)[:width]}"
            )
    return "\n".join(parts) + "\n"


def _difference(old: bytes | None, new: bytes | None) -> str:
    import difflib

    a, b = (
        (text or b"").decode("utf-8", "replace").splitlines(keepends=True) for text in (old, new)
    )
    return "".join(difflib.unified_diff(a, b, "old", "new"))


def as_json(score: Score) -> str:
    """Every row without the texts, for comparing runs."""
    rows = [
        {
            "case": row.case.id, "corpus": row.case.corpus, "kind": row.case.kind,
            "shape": row.case.shape, "wanted": row.case.wanted, "applier": row.applier,
            "outcome": row.outcome, "result": digest(row.attempt.changed),
            "tiers": row.attempt.tiers, "reader": row.attempt.reader, "reason": row.attempt.reason,
        }
        for row in score.rows
    ]  # fmt: skip
    return json.dumps({"missing": score.missing, "rows": rows}, indent=0) + "\n"
