"""Trains the probability that a context is complete: `collect` rows of mined repairs, then `train`.

    python -m training.completeness collect --repos DIR --output ROWS.jsonl [--projects owner/name]
    python -m training.completeness train ROWS.jsonl

A row is a repair that a commit message describes: the ranking of its first parent, and for each
budget whether the packed context shows every line that the repair removes, and a neighbour of every
line that it inserts. `train` fits a logistic model, measures it on projects that it was not fitted
to, and prints the constants of `agent.retrieval.context.confidence`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.datasets.changed_lines import parse_patch
from agent.errors import PatchshotError
from agent.repository import take_snapshot
from agent.retrieval.context import PackingOptions, pack
from agent.retrieval.context.confidence import (
    CHUNKS,
    CONFIDENT,
    INCOMPLETE_TOKENS,
    LARGE,
    SMALL,
    signals,
)
from agent.retrieval.index import TreeSitterChunker, split_lines
from agent.retrieval.ranking import HybridRetriever, RetrievalOptions
from agent.run.problem import problem_from_text
from agent.shared.tokens import TiktokenCounter, encoding_for
from agent.types import ContextBundle, Problem, Ranking
from agent.types.events import Event
from agent.types.protocols import Snapshot
from benchmarks.instances.messages import describe
from training.extraction import MAX_FILES, candidates, is_source
from training.history import ProjectHistory
from training.projects import chosen, discover, repository_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_LINES = 150
"""Most removed lines and insertions; a larger change does more than to repair one fault."""

BUDGETS = (2000, 3000, 4500, 6000, 9000, 12_000, 18_000, 24_000)

_COMMITS = 4_000

Need = tuple[str, tuple[int, ...]]
"""A path, and lines of it of which one has to be shown."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A commit whose message describes a fault. `patch`: its diff without context."""

    name: str
    repo: str
    parent: str
    problem: str
    patch: str


def repairs(history: ProjectHistory, repo: str) -> Iterator[Repair]:
    """Yield the repairs of a project, newest first. Raises RepositoryError."""
    commits = history.commits(_COMMITS)
    merged = history.messages(sorted({commit.merged for commit in commits if commit.merged}))
    project = repo.rpartition("/")[2]
    told = ((one, describe(one.message.text, project)) for one in candidates(commits, merged, repo))
    found = [(one.commit, problem) for one, problem in told if problem]
    for start in range(0, len(found), 100):
        batch = found[start : start + 100]
        patches = history.patches(commit for commit, _ in batch)
        for commit, problem in batch:
            patch = patches.get(commit.id, "")
            yield Repair(f"{repo}@{commit.id[:12]}", repo, commit.parent, problem, patch)


def needs_of(patch: str, snapshot: Snapshot) -> tuple[Need, ...]:
    """Return what a context must show of the source files that a diff changes.

    Raises ValueError for a diff that cannot be read.
    """
    needs: list[Need] = []
    for file in parse_patch(patch):
        if not is_source(file.path) or file.path not in snapshot.files:
            continue
        filled = [
            number
            for number, line in enumerate(split_lines(snapshot.text(file.path)), 1)
            if line.strip()
        ]
        needs += [(file.path, (number,)) for number in file.removed if number in set(filled)]
        for insertion in file.inserted:
            before = [n for n in filled if n <= insertion.after][-1:]
            after = [n for n in filled if n > insertion.after][:1]
            if before or after:
                needs.append((file.path, (*before, *after)))
    return tuple(dict.fromkeys(needs))


def share_shown(bundle: ContextBundle, needs: Sequence[Need]) -> float:
    """Return the share of the needs that a context meets."""
    shown = {
        (path, number)
        for path, runs in bundle.shown_lines.items()
        for first, last in runs
        for number in range(first, last + 1)
    }
    met = sum(any((path, number) in shown for number in lines) for path, lines in needs)
    return met / len(needs)


class Collector:
    """Makes the rows of repairs; the index is kept in `cache`."""

    def __init__(self, cache: Path) -> None:
        self._chunker = TreeSitterChunker()
        self._counter = TiktokenCounter(encoding_for(""))
        self._retriever = HybridRetriever(
            RetrievalOptions(),
            embedder=None,
            index_path=cache / "index.sqlite",
            reporter=_ignore,
            workers=1,
        )

    def row(self, repair: Repair, repository: Path) -> Mapping[str, Any] | None:
        """Return the row of a repair; None if it changes no existing source or too much of it."""
        snapshot = take_snapshot(repository, commit=repair.parent)
        try:
            needs = needs_of(repair.patch, snapshot)
        except ValueError:
            return None
        if not 1 <= len(needs) <= MAX_LINES or len({path for path, _ in needs}) > MAX_FILES:
            return None
        problem = problem_from_text(repair.problem, repair.name)
        ranking = asyncio.run(self._retriever.rank(problem, snapshot))
        return self._packed(repair, problem, snapshot, ranking, needs)

    def _packed(
        self,
        repair: Repair,
        problem: Problem,
        snapshot: Snapshot,
        ranking: Ranking,
        needs: Sequence[Need],
    ) -> Mapping[str, Any]:
        made = {}
        for budget in BUDGETS:
            options = PackingOptions(budget=budget)
            made[budget] = pack(
                problem, ranking, snapshot, self._counter, options, chunker=self._chunker
            )
        return {
            "name": repair.name,
            "repo": repair.repo,
            "parent": repair.parent,
            "problem": repair.problem,
            "needs": needs,
            "total": ranking.total_chunks,
            "total_files": len(snapshot.files),
            "chunks": [self._chunk(s) for s in ranking.chunks[:CHUNKS]],
            "budgets": {
                budget: {
                    "share": round(share_shown(bundle, needs), 4),
                    "tokens": bundle.tokens,
                    "pieces": len(bundle.pieces),
                    "files": len({piece.path for piece in bundle.pieces}),
                }
                for budget, bundle in made.items()
            },
        }

    def _chunk(self, scored: Any) -> Sequence[Any]:
        chunk = scored.chunk
        why = {r.feature: round(r.value, 5) for r in scored.reasons}
        tokens = self._counter.count(chunk.text)
        return [
            chunk.path, chunk.symbol, chunk.kind.value, chunk.start, chunk.end, tokens,
            round(scored.score, 5), why,
        ]  # fmt: skip


def _ignore(_: Event) -> None:
    pass


def collect(
    repos: Path, projects: Iterable[str], output: Path, cache: Path, most: int
) -> Iterator[str]:
    """Append the rows of at most `most` repairs a project; yield what was done with each.

    Rows that the file has already are not made again.
    """
    known = {row["name"] for row in read_rows(output)} if output.exists() else set()
    collector = Collector(cache)
    for repo in projects:
        location = repository_of(repos, repo)
        for repair in islice(repairs(ProjectHistory(location), repo), most):
            if repair.name in known:
                continue
            try:
                row = collector.row(repair, location.root)
            except PatchshotError as error:
                yield f"{repair.name}: {error}"
                continue
            if row is not None:
                with output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            yield f"{repair.name}: {'kept' if row else 'left out'}"


def read_rows(path: Path) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a file, by name."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return sorted(rows, key=lambda row: str(row["name"]))


# ----------------------------------------------------------------------------------------- training

RIDGE = 8.0
"""Penalty on squared weights of standardised signals, for each budget: its rows are the same
repairs."""

FOLDS = 8
_LIMIT = 1 - PackingOptions().reserve
_ITERATIONS = 50


@dataclass(frozen=True, slots=True)
class Fit:
    """A logistic model: weights of the signals by name, and the bias."""

    names: tuple[str, ...]
    weights: NDArray[np.float64]
    bias: float

    def probabilities(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of each row of signals, float64 (n, k) -> (n,)."""
        values: NDArray[np.float64] = 1 / (1 + np.exp(-(table @ self.weights + self.bias)))
        return values


def table_of(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.float64]]:
    """Return the names of the signals, the signals (n, BUDGETS, k), and the truth (n, BUDGETS)."""
    found = [[_signals(row, budget) for budget in BUDGETS] for row in rows]
    names = tuple(found[0][0])
    truth = [[row["budgets"][str(b)]["share"] >= 1 for b in BUDGETS] for row in rows]
    table = np.array([[[one[name] for name in names] for one in line] for line in found])
    return names, table, np.array(truth, np.float64)


def _signals(row: Mapping[str, Any], budget: int) -> Mapping[str, float]:
    chunks = row["chunks"][:CHUNKS]
    scores, tokens = [chunk[6] for chunk in chunks], [chunk[5] for chunk in chunks]
    return signals(scores, tokens, int(budget * _LIMIT))


def fit(names: tuple[str, ...], table: NDArray[np.float64], truth: NDArray[np.float64]) -> Fit:
    """Fit the model by Newton's method to signals (n, k) and truth (n,)."""
    mean, scale = table.mean(axis=0), table.std(axis=0) + 1e-9
    rows = np.column_stack([(table - mean) / scale, np.ones(len(table))])
    penalty = np.full(rows.shape[1], RIDGE * len(BUDGETS))
    penalty[-1] = 1e-6
    weights = np.zeros(rows.shape[1])
    for _ in range(_ITERATIONS):
        likely = 1 / (1 + np.exp(-rows @ weights))
        gradient = rows.T @ (likely - truth) + penalty * weights
        curvature = (rows * (likely * (1 - likely))[:, None]).T @ rows + np.diag(penalty)
        weights -= np.linalg.solve(curvature, gradient)
    own = weights[:-1] / scale
    return Fit(names, own, float(weights[-1] - own @ mean))


def train(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the Brier scores and the reliability on held-out projects, then the constants."""
    names, table, truth = table_of(rows)
    projects = sorted({str(row["repo"]) for row in rows})
    fold = np.array([projects.index(str(row["repo"])) % FOLDS for row in rows])
    likely, constant = np.zeros_like(truth), np.zeros_like(truth)
    for held in range(FOLDS):
        others = fold != held
        made = fit(names, table[others].reshape(-1, len(names)), truth[others].ravel())
        likely[~others] = made.probabilities(table[~others])
        constant[~others] = truth[others].mean(axis=0)
    yield f"{len(rows)} repairs of {len(projects)} projects, {FOLDS} folds by project"
    yield "| budget | complete | Brier | Brier of the mean |"
    yield "|--:|--:|--:|--:|"
    for at, budget in enumerate(BUDGETS):
        own, plain = (_brier(one[:, at], truth[:, at]) for one in (likely, constant))
        yield f"| {budget:,} | {truth[:, at].mean():.1%} | {own:.3f} | {plain:.3f} |"
    yield f"| all | | {_brier(likely, truth):.3f} | {_brier(constant, truth):.3f} |"
    yield from _reliability(likely, truth)
    spent = np.array([[row["budgets"][str(b)]["tokens"] for b in BUDGETS] for row in rows])
    yield from _expected(likely, spent + (1 - truth) * INCOMPLETE_TOKENS, spent)
    whole = fit(names, table.reshape(-1, len(names)), truth.ravel())
    yield f"BIAS = {whole.bias:.4f}"
    yield f"WEIGHTS = {dict(zip(names, whole.weights.round(4).tolist(), strict=True))}"


def _brier(likely: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    return float(((likely - truth) ** 2).mean())


def _expected(
    likely: NDArray[np.float64], costs: NDArray[np.float64], spent: NDArray[np.float64]
) -> Iterator[str]:
    """Yield the mean tokens of the context, and with what follows if it is incomplete."""
    rows = np.arange(len(costs))
    small, large = BUDGETS.index(SMALL), BUDGETS.index(LARGE)
    least = (np.array(BUDGETS) + (1 - likely) * INCOMPLETE_TOKENS).argmin(axis=1)
    chosen = {
        **{f"{budget:,}": np.full(len(rows), at) for at, budget in enumerate(BUDGETS)},
        "least expected by the model": least,
        f"{SMALL:,} or {LARGE:,}": np.where(likely[:, small] >= CONFIDENT, small, large),
    }
    yield "| budget | context tokens | expected of the run |"
    yield "|---|--:|--:|"
    for name, at in chosen.items():
        yield f"| {name} | {spent[rows, at].mean():,.0f} | {costs[rows, at].mean():,.0f} |"


def _reliability(likely: NDArray[np.float64], truth: NDArray[np.float64]) -> Iterator[str]:
    yield "| predicted | contexts | mean prediction | complete |"
    yield "|---|--:|--:|--:|"
    for low in range(10):
        inside = (likely * 10 >= low) & (likely * 10 < low + 1)
        if inside.any():
            means = f"{likely[inside].mean():.2f} | {truth[inside].mean():.2f}"
            yield f"| {low / 10:.1f}-{(low + 1) / 10:.1f} | {inside.sum()} | {means} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.completeness", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("collect")
    making.add_argument("--repos", type=Path, required=True)
    making.add_argument("--output", type=Path, required=True)
    making.add_argument("--cache", type=Path, required=True)
    making.add_argument("--projects", nargs="*")
    making.add_argument("--most", type=int, default=40)
    training = commands.add_parser("train")
    training.add_argument("rows", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "collect":
        projects = chosen(given.repos, given.projects or discover(given.repos))
        for line in collect(given.repos, projects, given.output, given.cache, given.most):
            sys.stderr.write(f"{line}\n")
    else:
        for line in train(read_rows(given.rows)):
            print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
