"""Fits the constants of `agent.search.calibration`: `python -m training.search_calibration DIR`.

DIR has one folder for each Python project. A query is the first sentence of a function's docstring,
and the function, or a passage of it, is the one relevant result. Each project is searched twice:
with all docstrings removed, by whole sentences; and as it is, by every second word of a sentence.
Every second project, by name, is left out of the fit and judges it.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agent.retrieval.ranking import HybridRetriever, load_shipped, preset
from agent.search import Label, SearchPaths, make_pool, read_folder
from agent.search.calibration import code_values, passage_values
from agent.search.code_results import FUNCTIONS
from agent.search.merging import CorpusHit
from agent.search.pool import PendingQuery, Pool, as_problem
from agent.search.stores import open_store
from agent.types.protocols import Snapshot

QUERIES = 40  # of a project, in each of its two forms
RESULTS = 20  # of a query
LEAST_WORDS, MOST_WORDS = 5, 25
RIDGE = 1e-3
EDGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
"""Bounds of the groups of predicted probabilities that are compared with what was relevant."""

Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Described:
    """A function and the first sentence of its docstring."""

    path: str
    symbol: str
    sentence: str


@dataclass(slots=True)
class Examples:
    """Values of results, and whether each was relevant (1.0 or 0.0)."""

    values: list[tuple[float, ...]] = field(default_factory=list)
    relevant: list[float] = field(default_factory=list)


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Yield all functions and classes with their qualified names."""
    for child in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(child, Node):
            yield prefix + child.name, child
            inner = f"{prefix}{child.name}."
        yield from definitions(child, inner)


def described_in(path: str, tree: ast.Module) -> Iterator[Described]:
    """Yield the functions of a file whose docstring begins with a sentence of usual length."""
    for symbol, node in definitions(tree):
        doc = ast.get_docstring(node) or ""
        sentence = " ".join(doc.split("\n\n")[0].split()).split(". ")[0].rstrip(".")
        if isinstance(node, ast.ClassDef) or ":param" in sentence or symbol.endswith("__"):
            continue
        if LEAST_WORDS <= len(sentence.split()) <= MOST_WORDS:
            yield Described(path, symbol, sentence)


def without_docstrings(text: str, tree: ast.Module) -> str:
    """Return the text with `pass` or a blank line for each docstring, and the same line numbers."""
    lines = text.split("\n")
    for node in (tree, *(node for _, node in definitions(tree))):
        first = node.body[0] if node.body else None
        if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
            continue
        if lines[first.lineno - 1][: first.col_offset].strip():
            continue  # on the line of the definition
        last = first.end_lineno or first.lineno
        lines[first.lineno - 1 : last] = [""] * (last - first.lineno + 1)
        if node is not tree:
            lines[first.lineno - 1] = f"{' ' * first.col_offset}pass"
    return "\n".join(lines)


def prepare(project: Path, stripped: Path) -> list[Described]:
    """Write the project's Python files without docstrings; return functions to search for."""
    found: list[Described] = []
    snapshot = read_folder(project)
    for path, file in snapshot.files.items():
        if file.language != "python":
            continue
        text = snapshot.text(path)
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        if "test" not in path:
            found.extend(described_in(path, tree))
        (stripped / path).parent.mkdir(parents=True, exist_ok=True)
        (stripped / path).write_text(without_docstrings(text, tree), "utf-8", "surrogateescape")
    distinct = {one.sentence: one for one in found}
    chosen = sorted(distinct.values(), key=lambda one: (one.path, one.symbol))
    return random.Random(0).sample(chosen, min(QUERIES, len(chosen)))  # noqa: S311


async def search(
    snapshot: Snapshot, corpus: Label, queries: Sequence[tuple[str, Described]], work: Path
) -> tuple[Examples, Examples]:
    """Search code and one other corpus; return the examples of each."""
    options = preset("default")
    paths = SearchPaths(work, work)
    retriever = HybridRetriever(options, embedder=None, index_path=paths.index, reporter=_ignore)
    code, passages = Examples(), Examples()
    with open_store(f"sqlite://{work / 'store.sqlite'}", _ignore) as store:
        pool = make_pool(
            snapshot, (Label.CODE, corpus), paths, _ignore,
            encoder=load_shipped(options).encoder, store=store, retriever=retriever,
        )  # fmt: skip
        for text, wanted in queries:
            hits = await _hits(pool, text, (Label.CODE, corpus))
            of_code = [hit for hit in hits if hit.passage.corpus is Label.CODE]
            scores = [sum(reason.value for reason in hit.reasons) for hit in of_code]
            functions = [hit.passage.tags[0] in FUNCTIONS for hit in of_code]
            code.values += code_values(scores, functions)
            code.relevant += [_is(hit, wanted) for hit in of_code]
            others = [hit for hit in hits if hit.passage.corpus is corpus]
            passages.values += passage_values([hit.matched for hit in others])
            passages.relevant += [_is(hit, wanted) for hit in others]
    return code, passages


async def _hits(pool: Pool, text: str, labels: tuple[Label, ...]) -> list[CorpusHit]:
    pending = PendingQuery(as_problem(text), labels, RESULTS // 2, 0.0)
    await pool._search([pending], labels, "off")  # before results are merged
    return pending.hits


def _is(hit: CorpusHit, wanted: Described) -> float:
    return float((hit.passage.path, hit.passage.symbol) == (wanted.path, wanted.symbol))


def _ignore(_event: object) -> None:
    pass


def measure(project: Path) -> tuple[Examples, Examples]:
    """Return the examples of code and of passages of one project."""
    with tempfile.TemporaryDirectory() as folder:
        stripped, work = Path(folder) / "stripped", Path(folder) / "work"
        (work / "whole").mkdir(parents=True)
        (work / "bare").mkdir()
        chosen = prepare(project, stripped)
        halves = [(" ".join(one.sentence.split()[::2]), one) for one in chosen]
        whole = [(one.sentence, one) for one in chosen]
        bare = asyncio.run(search(read_folder(stripped), Label.INTENT, whole, work / "bare"))
        full = asyncio.run(search(read_folder(project), Label.DOCS, halves, work / "whole"))
    return (
        Examples(bare[0].values + full[0].values, bare[0].relevant + full[0].relevant),
        Examples(bare[1].values + full[1].values, bare[1].relevant + full[1].relevant),
    )


def fit(values: NDArray[np.float64], relevant: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return constant and weights of a logistic regression, by Newton's method."""
    rows = np.column_stack((np.ones(len(values)), values))
    ridge = RIDGE * np.diag([0.0] + [1.0] * values.shape[1])
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-rows @ weights))
        gradient = rows.T @ (p - relevant) / len(rows) + ridge @ weights
        curvature = (rows * (p * (1.0 - p))[:, None]).T @ rows / len(rows) + ridge
        weights -= np.linalg.solve(curvature + 1e-9 * np.eye(len(weights)), gradient)
    return weights


def report(name: str, fitted: Examples, held_out: Examples) -> None:
    """Print the constants, the Brier score and the reliability of the held-out projects."""
    weights = fit(np.array(fitted.values), np.array(fitted.relevant))
    values, relevant = np.array(held_out.values), np.array(held_out.relevant)
    p = 1.0 / (1.0 + np.exp(-(np.column_stack((np.ones(len(values)), values)) @ weights)))
    base = np.mean((np.mean(fitted.relevant) - relevant) ** 2)
    print(f"{name}: {np.round(weights, 3).tolist()}")
    print(f"  Brier score {np.mean((p - relevant) ** 2):.4f}, without values {base:.4f}")
    for low, high in pairwise(EDGES):
        group = (p >= low) & (p < high)
        if group.any():
            said, true = p[group].mean(), relevant[group].mean()
            print(f"  {low:.2f}-{high:.2f}: {group.sum():5d}, said {said:.2f}, true {true:.2f}")


def main() -> None:
    """Measure all projects and print the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("projects", type=Path)
    found: list[tuple[Examples, Examples]] = []
    for project in sorted(parser.parse_args().projects.iterdir()):
        found.append(measure(project))
        print(project.name, *(f"{np.mean(one.relevant):.4f}" for one in found[-1]), flush=True)
    for number, name in enumerate(("code", "passages")):
        sides = (Examples(), Examples())
        for at, examples in enumerate(found):
            sides[at % 2].values += examples[number].values
            sides[at % 2].relevant += examples[number].relevant
        report(name, *sides)


if __name__ == "__main__":
    main()
