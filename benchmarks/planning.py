"""`python -m benchmarks.planning`: whether plan search widens a context better than the ranking.

For each issue the context of a second attempt is packed at the same budgets twice: from the issue's
own ranking (plain widening) and from the ranking that the winning plan makes of it. What is counted
is context recall: whether every function that was changed in the end is wholly shown; and the share
of them that is. Differences are of pairs, with bootstrap intervals.

    python -m benchmarks.planning --dataset D.jsonl --repos DIR --cache DIR --split held-out
    ... --prompts DIR --limit 20     writes the exact prompt of the one call, an issue a file
    ... --replies DIR --limit 20     answers that call from `DIR/<id>.txt`

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

from agent.context.builder import PackingOptions
from agent.context.packing import pack
from agent.errors import UsageError
from agent.evaluation.retrieval.gold import Gold, find_gold, gold_paths
from agent.evaluation.retrieval.metrics import Interval, bootstrap_mean
from agent.index.chunking import TreeSitterChunker
from agent.index.index import Index
from agent.problem import problem_from_text
from agent.ranking.options import preset
from agent.ranking.ranker import load_shipped
from agent.ranking.retriever import HybridRetriever
from agent.repository.snapshot import take_snapshot
from agent.search.plans.planner import Planner, PlanOptions, plan_prompt
from agent.swebench.instances import GoldInstance, load_dataset, part_of
from agent.swebench.repositories import find_repository, read_files
from agent.tokens import TiktokenCounter, encoding_for
from agent.types import Completion, Usage

if TYPE_CHECKING:
    from agent.protocols import Snapshot
    from agent.types import ContextBundle, Problem, Prompt, Ranking

SALT = "planning-1"
"""Decides which issues are the first; never to be changed after looking at results."""

FIRST_BUDGET = 6_000  # of the attempt that is taken to have failed
BUDGETS = (12_000, 24_000)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One issue, ready to be measured."""

    instance: GoldInstance
    problem: Problem
    snapshot: Snapshot
    gold: Gold


@dataclass(frozen=True, slots=True)
class Saved:
    """A chat model that gives the reply that was saved for one issue, whatever it is asked."""

    path: Path
    model: str = "saved"

    async def complete(self, prompt: Prompt, **_: object) -> Completion:
        """The saved reply."""
        text = self.path.read_text("utf-8")
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

    def planner(self, tokens: int, calls: int) -> Planner:
        """Plan search for a context of so many tokens."""
        options = PlanOptions(tokens=tokens, calls=calls)
        return Planner(self.index, self.options, self.counter, options)


def measure(bench: Bench, case: Case, replies: Path | None) -> Row:
    """All figures of one issue."""
    ranking = bench.rank(case)
    first = bench.pack(case, ranking, FIRST_BUDGET)
    row: Row = {"instance_id": case.instance.instance_id, "repo": case.instance.repo}
    row["first"] = judged(first, case.gold)
    row |= _packed(bench, case, "plain", ranking)
    row |= _planned(bench, case, ranking, first, None)
    if replies is not None:
        reply = replies / f"{case.instance.instance_id}.txt"
        row |= _planned(bench, case, ranking, first, reply)
    return row


def _packed(bench: Bench, case: Case, way: str, ranking: Ranking) -> Row:
    contexts = {budget: bench.pack(case, ranking, budget) for budget in BUDGETS}
    return {f"{way} {budget}": judged(found, case.gold) for budget, found in contexts.items()}


def _planned(
    bench: Bench, case: Case, ranking: Ranking, first: ContextBundle, reply: Path | None
) -> Row:
    chat = Saved(reply) if reply is not None else None
    way = "plan" if reply is None else "model"
    planner = bench.planner(BUDGETS[0], int(chat is not None))
    started = time.perf_counter()
    planned = asyncio.run(planner.plan(case.problem, case.snapshot, ranking, first, chat=chat))
    seconds = time.perf_counter() - started
    row = _packed(bench, case, way, planned.ranking)
    row[f"{way} search"] = [
        f"{seconds:.3f} s, {planned.rankings} rankings, value {planned.winner.value.total:.4f}",
        *(intent.text for intent in planned.winner.plan.intents),
    ]
    row[f"{way} seconds"], row[f"{way} rankings"] = round(seconds, 3), planned.rankings
    row[f"{way} note"] = planned.note
    return row


def judged(bundle: ContextBundle, gold: Gold) -> Row:
    """Whether all, and which share, of the gold functions a context wholly shows."""
    shown: dict[str, set[int]] = {}
    for piece in bundle.pieces:
        if piece.form != "signatures":
            for start, end in piece.shown:
                shown.setdefault(piece.path, set()).update(range(start, end + 1))
    found = [bool(p.lines) and shown.get(p.path, set()).issuperset(p.lines) for p in gold.places]
    return {"all": float(all(found)), "share": sum(found) / len(found), "tokens": bundle.tokens}


# ----------------------------------------------------------------------------------------- figures


def table(rows: Sequence[Row]) -> Iterable[str]:
    """Lines for people: each way at each budget, and paired differences."""
    ways = [name for name in rows[0] if isinstance(rows[0][name], dict)]
    yield f"{len(rows)} issues of {len({row['repo'] for row in rows})} projects"
    yield f"{'':<14}{'all shown':>24}{'share shown':>24}{'tokens':>9}{'/ 1,000 tokens':>16}"
    for way in ways:
        every, share = _interval(rows, way, "all"), _interval(rows, way, "share")
        tokens = float(np.median([row[way]["tokens"] for row in rows]))
        per = 1000.0 * share.mean / tokens
        yield f"{way:<14}{_text(every):>24}{_text(share):>24}{tokens:>9,.0f}{per:>16.4f}"
    for budget in BUDGETS:
        for way in (f"plan {budget}", f"model {budget}"):
            if way in ways:
                yield from _difference(rows, way, f"plain {budget}")
    yield from _speed(rows)


def _difference(rows: Sequence[Row], way: str, other: str) -> Iterable[str]:
    for what in ("all", "share"):
        values = np.array([row[way][what] - row[other][what] for row in rows])
        found = bootstrap_mean(values)
        assert found is not None
        better, worse = int((values > 0).sum()), int((values < 0).sum())
        yield (
            f"{way} - {other}, {what}: {_text(found, signed=True)}; "
            f"better on {better}, worse on {worse}"
        )


def _speed(rows: Sequence[Row]) -> Iterable[str]:
    for way in ("plan", "model"):
        if f"{way} seconds" in rows[0]:
            seconds = float(np.median([row[f"{way} seconds"] for row in rows]))
            rankings = float(np.median([row[f"{way} rankings"] for row in rows]))
            yield f"{way}: {seconds:.2f} s and {rankings:.0f} rankings a search (medians)"


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

    return sorted((i for i in instances if i.gold_functions), key=_key)


def chosen(bench: Bench, instances: Iterable[GoldInstance], limit: int) -> Iterable[Case]:
    """The first `limit` that can be judged."""
    left = limit
    for instance in in_order(instances):
        case = bench.case(instance) if left else None
        if case is not None:
            left -= 1
            yield case


def write_prompts(bench: Bench, cases: Iterable[Case], folder: Path) -> None:
    """The exact prompt of each issue's call."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases:
        ranking = bench.rank(case)
        first = bench.pack(case, ranking, FIRST_BUDGET)
        prompt = plan_prompt(case.problem, ranking, first, bench.counter)
        text = "\n\n".join(message.content for message in prompt.messages)
        (folder / f"{case.instance.instance_id}.md").write_text(text + "\n", "utf-8")
        print(case.instance.instance_id, prompt.tokens, prompt.sha256[:12])


def measure_all(
    bench: Bench, cases: Iterable[Case], output: Path, replies: Path | None
) -> list[Row]:
    """A row for each, those of `output` as they are there."""
    known: Mapping[str, Row] = {}
    if output.exists():
        read = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
        known = {row["instance_id"]: row for row in read}
    rows = []
    for case in cases:
        name = case.instance.instance_id
        if replies is not None and not (replies / f"{name}.txt").is_file():
            print(f"{name}: no reply")
            continue
        row = known.get(name)
        if row is None:
            row = measure(bench, case, replies)
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(name, *(f"{k}={v['share']:.2f}" for k, v in row.items() if isinstance(v, dict)))
        rows.append(row)
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--split", choices=("tune", "held-out"), default="tune")
    parser.add_argument("--limit", type=int, default=80)
    parser.add_argument("--output", type=Path, default=Path("planning.jsonl"))
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--replies", type=Path)
    options = parser.parse_args()
    bench = Bench(options.repos, options.cache)
    cases = chosen(bench, part_of(load_dataset(options.dataset), options.split), options.limit)
    if options.prompts is not None:
        write_prompts(bench, cases, options.prompts)
        return
    rows = measure_all(bench, cases, options.output, options.replies)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
