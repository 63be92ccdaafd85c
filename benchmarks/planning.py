"""`python -m benchmarks.planning`: whether a plan finds more code to change than the ranking.

For each issue, plans are searched with 0 and with `--calls` model calls, and compared with the
issue's own ranking in three ways: which share of the files and functions that were changed the
plan's steps name, against as many first names of the ranking; and which share of the changed
functions and of the edits a context shows, packed from the ranking that the plan makes (`wide`,
as for the iterative mode) or from the issue's own, the plan's text taking its place in the budget
(`shown`, as with `agent solve --plan`). Differences are of pairs, with bootstrap intervals.

    python -m benchmarks.planning --dataset D.jsonl --repos DIR --cache DIR --split held-out
    ... --calls 1 3 --replies DIR    answers call K from `DIR/<id>.K.txt`; without that file its
                                     prompt is written to `DIR/<id>.K.md`

Issues are taken in the order of a hash of their names. Rows are kept in `--output` and not measured
again.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.datasets.instances import GoldInstance, load_dataset, part_of
from agent.datasets.repositories import find_repository, read_files
from agent.errors import ProviderUnreachable, UsageError
from agent.evaluation.retrieval.gold import Gold, counted_name, find_gold, gold_paths
from agent.evaluation.retrieval.metrics import Interval, bootstrap_mean
from agent.repository.snapshot import take_snapshot
from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.packing import pack
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.retrieval.index.index import Index
from agent.retrieval.ranking.options import preset
from agent.retrieval.ranking.ranker import load_shipped
from agent.retrieval.ranking.retriever import HybridRetriever
from agent.run.problem import problem_from_text
from agent.search.plans.planner import Planned, Planner, PlanOptions, plan_text
from agent.shared.tokens import TiktokenCounter, encoding_for
from agent.types import Completion, Usage

if TYPE_CHECKING:
    from agent.types import ContextBundle, Problem, Prompt, Ranking
    from agent.types.protocols import Snapshot

SALT = "planning-1"
"""Decides which issues are the first; never to be changed after looking at results."""

BUDGETS = (6_000, 12_000, 24_000)
MEASURES = ("all", "share", "edits")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One issue, ready to be measured."""

    instance: GoldInstance
    problem: Problem
    snapshot: Snapshot
    gold: Gold


@dataclass(slots=True)
class Saved:
    """A chat model that gives the replies that were saved for one issue, in their order."""

    stem: Path
    model: str = "saved"
    calls: int = 0

    async def complete(self, prompt: Prompt, **_: object) -> Completion:
        """The next saved reply; without one, write the prompt and raise ProviderUnreachable."""
        self.calls += 1
        path = self.stem.with_name(f"{self.stem.name}.{self.calls}.txt")
        if not path.is_file():
            asked = "\n\n".join(message.content for message in prompt.messages)
            path.with_suffix(".md").write_text(f"{asked}\n", "utf-8")
            raise ProviderUnreachable(f"{path} is missing")
        text = path.read_text("utf-8")
        return Completion(text, self.model, "stop", Usage(prompt.tokens, 0, None, 1), 0.0)


class Bench:
    """The parts that all issues share."""

    def __init__(self, repositories: Path, cache: Path) -> None:
        self.repositories = repositories
        self.options = preset("lexical")
        encoder = load_shipped(self.options).encoder
        self.index = Index(lambda _: None, cache / "index.sqlite", 1, encoder=encoder)
        self.counter = TiktokenCounter(encoding_for(""))
        self.chunker = TreeSitterChunker()
        self.retriever = HybridRetriever(
            self.options, embedder=None, index_path=self.index.path, reporter=lambda _: None
        )

    def case(self, instance: GoldInstance) -> Case | None:
        """The issue, or None where it cannot be judged: no commit, no function that is there."""
        repository = find_repository(self.repositories, instance.repo)
        if repository is None:
            return None
        try:
            problem = problem_from_text(instance.problem_statement, instance.instance_id)
            texts = read_files(repository, instance.base_commit, gold_paths(instance))
            gold = find_gold(instance, texts, self.chunker)
            if not gold.functions:
                return None
            snapshot = take_snapshot(repository, commit=instance.base_commit)
        except UsageError:
            return None
        return Case(instance, problem, snapshot, gold)

    def rank(self, case: Case) -> Ranking:
        """The issue's own ranking."""
        self.index.refresh(case.snapshot)
        return asyncio.run(self.retriever.rank(case.problem, case.snapshot))

    def pack(self, case: Case, ranking: Ranking, budget: int) -> ContextBundle:
        """The context as a solve would pack it."""
        options = PackingOptions(budget=budget)
        return pack(
            case.problem, ranking, case.snapshot, self.counter, options, chunker=self.chunker
        )

    def planner(self, calls: int, width: int | None) -> Planner:
        """Plan search with so many calls at most."""
        options = PlanOptions(calls=calls, width=width)
        return Planner(self.index, self.options, self.counter, options)


@dataclass(frozen=True, slots=True)
class Ways:
    """The searches to compare: with these numbers of calls, and the width of a beam."""

    calls: tuple[int, ...]
    width: int | None
    replies: Path | None


def measure(bench: Bench, case: Case, ways: Ways) -> Row:
    """All figures of one issue."""
    ranking = bench.rank(case)
    row: Row = {"instance_id": case.instance.instance_id, "repo": case.instance.repo}
    row |= _packed(bench, case, "plain", ranking)
    for calls in ways.calls:
        row |= _planned(bench, case, ranking, calls, ways)
    return row


def _packed(bench: Bench, case: Case, way: str, ranking: Ranking, beside: int = 0) -> Row:
    """Contexts of each budget in which a text of `beside` tokens has its place."""
    contexts = {budget: bench.pack(case, ranking, budget - beside) for budget in BUDGETS}
    return {f"{way} {budget}": judged(found, case.gold) for budget, found in contexts.items()}


def _planned(bench: Bench, case: Case, ranking: Ranking, calls: int, ways: Ways) -> Row:
    planner = bench.planner(calls, ways.width)
    started = time.perf_counter()

    chat = Saved((ways.replies or Path()) / case.instance.instance_id)
    planned = asyncio.run(planner.plan(case.problem, case.snapshot, ranking, chat=chat))
    seconds = time.perf_counter() - started
    text = plan_text(planned, bench.counter, BUDGETS[0] // 4)  # as agent.run.context_steps does
    row = _packed(bench, case, f"wide-{calls}", planned.ranking)
    row |= _packed(bench, case, f"shown-{calls}", ranking, bench.counter.count(text))
    row[f"plan-{calls}"] = {
        "value": round(planned.winner.value.total, 4),
        "calls": planned.calls,
        "rankings": planned.rankings,
        "seconds": round(seconds, 3),
        "note": planned.note,
        **_named(planned, ranking, case.gold),
    }
    row[f"intents-{calls}"] = [intent.text for intent in planned.winner.plan.intents]
    return row


def _named(planned: Planned, ranking: Ranking, gold: Gold) -> Row:
    """Shares of the gold files and functions in the steps, and in as many first ranked names."""
    steps = {(p.path, p.symbol) for step in planned.steps for p in step.places}
    ranked = dict.fromkeys((s.chunk.path, s.chunk.symbol) for s in ranking.chunks if s.chunk.symbol)
    found: Row = {"names": len(steps)}
    for way, names in (("plan", steps), ("plain", list(ranked)[: len(steps)])):
        files = {path for path, _ in names}.intersection(gold.files)
        functions = {counted_name(*name) for name in names}.intersection(gold.functions)
        found[f"{way} files"] = len(files) / len(gold.files)
        found[f"{way} functions"] = len(functions) / len(gold.functions)
    return found


def judged(bundle: ContextBundle, gold: Gold) -> Row:
    """Whether all, and which share, of the gold functions are wholly shown; shares of the edits."""
    shown: dict[str, set[int]] = {}
    for piece in bundle.pieces:
        if piece.form != "signatures":
            for start, end in piece.shown:
                shown.setdefault(piece.path, set()).update(range(start, end + 1))
    found = [bool(p.lines) and shown.get(p.path, set()).issuperset(p.lines) for p in gold.places]
    edits = [not shown.get(e.path, set()).isdisjoint(e.lines) for e in gold.edits]
    share = sum(edits) / len(edits) if edits else 0.0
    return {
        "all": float(all(found)),
        "share": sum(found) / len(found),
        "edits": share,
        "tokens": bundle.tokens,
    }


# ----------------------------------------------------------------------------------------- figures


def table(rows: Sequence[Row]) -> Iterable[str]:
    """Lines for people: each way at each budget, paired differences, and what plans name."""
    ways = [name for name in rows[0] if "tokens" in rows[0][name]]
    yield f"{len(rows)} issues of {len({row['repo'] for row in rows})} projects"
    yield f"{'':<14}{'all shown':>24}{'share shown':>24}{'edits shown':>24}{'tokens':>9}"
    for way in ways:
        figures = [_text(_interval(rows, way, what)) for what in MEASURES]
        tokens = float(np.median([row[way]["tokens"] for row in rows]))
        yield f"{way:<14}{''.join(f'{figure:>24}' for figure in figures)}{tokens:>9,.0f}"
    for way in ways:
        other = f"plain {way.partition(' ')[2]}"
        if way != other:
            yield from _difference(rows, way, other)
    for way in (name for name in rows[0] if name.startswith("plan-")):
        yield f"{way}: {', '.join(_means(rows, way))}"


def _difference(rows: Sequence[Row], way: str, other: str) -> Iterable[str]:
    for what in MEASURES:
        values = np.array([row[way][what] - row[other][what] for row in rows])
        found = bootstrap_mean(values)
        assert found is not None
        better, worse = int((values > 0).sum()), int((values < 0).sum())
        yield (
            f"{way} - {other}, {what}: {_text(found, signed=True)}; "
            f"better on {better}, worse on {worse}"
        )


def _means(rows: Sequence[Row], way: str) -> Iterable[str]:
    for what, value in rows[0][way].items():
        if not isinstance(value, str):
            yield f"{what} {float(np.mean([row[way][what] for row in rows])):.3f}"


def _interval(rows: Sequence[Row], way: str, what: str) -> Interval:
    found = bootstrap_mean(np.array([row[way][what] for row in rows]))
    assert found is not None
    return found


def _text(found: Interval, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    mean, low, high = (f"{100 * v:{sign}.1f}" for v in (found.mean, found.low, found.high))
    return f"{mean}% [{low}, {high}]"


# ------------------------------------------------------------------------------------ command line


def in_order(instances: Iterable[GoldInstance]) -> list[GoldInstance]:
    """By a hash of their names."""

    def _key(instance: GoldInstance) -> str:
        return hashlib.sha256(f"{SALT}:{instance.instance_id}".encode()).hexdigest()

    return sorted(instances, key=_key)


def chosen(bench: Bench, instances: Iterable[GoldInstance], limit: int) -> Iterable[Case]:
    """The first `limit` that can be judged."""
    left = limit
    for instance in in_order(instances):
        case = bench.case(instance) if left else None
        if case is not None:
            left -= 1
            yield case


def measure_all(bench: Bench, cases: Iterable[Case], output: Path, ways: Ways) -> list[Row]:
    """A row for each, those of `output` as they are there."""
    known: Mapping[str, Row] = {}
    if output.exists():
        read = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
        known = {row["instance_id"]: row for row in read}
    rows = []
    for case in cases:
        name = case.instance.instance_id
        row = known.get(name)
        if row is None:
            row = measure(bench, case, ways)
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(name, *(f"{way}={row[way]['edits']:.2f}" for way in row if " " in way))
        rows.append(row)
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--split", choices=("tune", "held-out", "all"), default="tune")
    parser.add_argument("--limit", type=int, default=80)
    parser.add_argument("--output", type=Path, default=Path("planning.jsonl"))
    parser.add_argument("--calls", type=int, nargs="*", default=())
    parser.add_argument("--beam", type=int)
    parser.add_argument("--replies", type=Path)
    options = parser.parse_args()
    if options.calls and options.replies is None:
        parser.error("--calls needs --replies")
    bench = Bench(options.repos, options.cache)
    cases = chosen(bench, part_of(load_dataset(options.dataset), options.split), options.limit)
    ways = Ways((0, *options.calls), options.beam, options.replies)
    print("\n".join(table(measure_all(bench, cases, options.output, ways))))


if __name__ == "__main__":
    main()
