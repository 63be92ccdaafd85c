"""Trains the ranker: `python -m training.ranker collect ...`, then `... train ...`.

`collect` writes one table of features per query (minutes to hours: it indexes every commit).
`train` fits two LambdaMART ensembles on the tables (seconds) and prints their metrics,
cross-validated by project. Training needs LightGBM; using the result does not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.retrieval.ranking.ranker import Ensemble, Ranker
from agent.retrieval.ranking.signals import (
    FILE_NAMES,
    PIECE_NAMES,
)
from training.ranker_data import Table, collect, commit_queries, issue_queries, read_tables
from training.writing import write_ranker

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 7
COMMIT_WEIGHT = (
    0.6  # weight of a commit; its message is shorter than an issue, and its author knew the answer
)
FOLDS = 6
SLOPE = 8.0
"""Slope of the plain sum. A few queries cannot teach the trees all of it."""

FILE_PARAMETERS: Mapping[str, Any] = {
    "num_leaves": 16, "learning_rate": 0.05, "rounds": 100, "min_data_in_leaf": 40,
    "lambda_l2": 5.0, "feature_fraction": 0.5, "bagging_fraction": 0.8,
}  # fmt: skip
PIECE_PARAMETERS: Mapping[str, Any] = {
    "num_leaves": 16, "learning_rate": 0.04, "rounds": 200, "min_data_in_leaf": 80,
    "lambda_l2": 5.0, "feature_fraction": 0.5, "bagging_fraction": 0.8,
}  # fmt: skip
"""Chosen by cross-validation over projects; a few hundred issues do not support larger trees."""

DIGITS = 6
"""Decimals of the trees' values: a bundle carries them as text. Scores differ by about 1."""

Part = Callable[[Table], tuple["NDArray[np.float32]", "NDArray[np.bool_]"]]


def files_of(table: Table) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return features and truth for the file ensemble."""
    return table.files, table.file_gold


def pieces_of(table: Table) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return features and truth for the piece ensemble."""
    return table.pieces, table.piece_gold


def fit(
    tables: Sequence[Table],
    part: Part,
    names: Sequence[str],
    parameters: Mapping[str, Any],
) -> Ensemble:
    """Fit LambdaMART to the queries with at least one answer among their candidates."""
    import lightgbm

    useful = [table for table in tables if part(table)[1].any()]
    rows = np.concatenate([part(table)[0] for table in useful])
    truth = np.concatenate([part(table)[1] for table in useful]).astype(np.int32)
    sizes = [len(part(table)[1]) for table in useful]
    weights = np.concatenate(
        [
            np.full(size, 1.0 if table.issue else COMMIT_WEIGHT)
            for table, size in zip(useful, sizes, strict=True)
        ]
    )
    data = lightgbm.Dataset(
        rows,
        truth,
        group=sizes,
        weight=weights,
        feature_name=list(names),
        init_score=SLOPE * rows[:, 0],
    )
    options = {
        "objective": "lambdarank", "lambdarank_truncation_level": 20, "bagging_freq": 1,
        "seed": SEED, "deterministic": True, "force_row_wise": True, "num_threads": 1,
        "verbose": -1, **{name: value for name, value in parameters.items() if name != "rounds"},
    }  # fmt: skip
    model = lightgbm.train(options, data, num_boost_round=parameters["rounds"])
    return from_dump(model.dump_model(), names)


def from_dump(dump: Mapping[str, Any], names: Sequence[str]) -> Ensemble:
    """Convert the `dump_model()` of a LightGBM model: numerical splits, no missing values."""
    roots: list[int] = []
    feature: list[int] = []
    threshold: list[float] = []
    right: list[int] = []
    value: list[float] = []

    def add(node: Mapping[str, Any]) -> int:
        number = len(feature)
        leaf = "leaf_value" in node
        feature.append(-1 if leaf else int(node["split_feature"]))
        threshold.append(0.0 if leaf else float(node["threshold"]))
        value.append(float(node["leaf_value"] if leaf else node["internal_value"]))
        right.append(0)
        if not leaf:
            add(node["left_child"])
            right[number] = add(node["right_child"]) - number
        return number

    roots.extend(add(tree["tree_structure"]) for tree in dump["tree_info"])
    return Ensemble(
        tuple(names),
        np.array(roots, np.int32),
        np.array(feature, np.int32),
        _not_above(np.array(threshold)),
        np.array(right, np.int32),
        np.round(value, DIGITS),
        np.array(SLOPE),
    )


def _not_above(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 not above each threshold, because feature rows are float32."""
    narrow = thresholds.astype(np.float32)
    above = narrow.astype(np.float64) > thresholds
    narrow[above] = np.nextafter(narrow[above], np.float32(-np.inf))
    return narrow


# --------------------------------------------------------------------------------------- evaluation

METRICS = ("file@1", "file@3", "file@5", "function@5", "function@10", "function@20")


def score_of(
    table: Table, files: NDArray[np.float64], pieces: NDArray[np.float64]
) -> tuple[bool, ...]:
    """Return the metrics of `agent eval retrieval` for one query, in the order of METRICS."""
    gold = set(table.gold)
    paths = [table.paths[i] for i in np.argsort(-files, kind="stable")]
    names = dict.fromkeys(table.names[i] for i in np.argsort(-pieces, kind="stable"))
    ranked = [name for name in names if name]
    wanted = {name.partition(":")[0] for name in gold}
    return (
        *(_found(wanted, paths, k) for k in (1, 3, 5)),
        *(_found(gold, ranked, k) for k in (5, 10, 20)),
    )


def _found(gold: set[str], ranked: Sequence[str], k: int) -> bool:
    return len(gold.intersection(ranked[:k])) == min(len(gold), k)


def cross_validate(
    tables: Sequence[Table],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean metrics over the issues: the plain sum's, and those of the ensembles.

    The ensembles for a project are trained on all other projects.
    """
    repos = sorted({table.repo for table in tables if table.issue})
    sizes = {repo: sum(t.issue and t.repo == repo for t in tables) for repo in repos}
    folds: list[list[str]] = [[] for _ in range(FOLDS)]
    for repo in sorted(repos, key=lambda repo: (-sizes[repo], repo)):
        min(folds, key=lambda fold: sum(sizes[r] for r in fold)).append(repo)
    plain, learned = [], []
    for fold in folds:
        seen = [table for table in tables if table.repo not in fold]
        files = fit(seen, files_of, FILE_NAMES, FILE_PARAMETERS)
        pieces = fit(seen, pieces_of, PIECE_NAMES, PIECE_PARAMETERS)
        for table in tables:
            if table.issue and table.repo in fold:
                order = -np.arange(len(table.paths)), -np.arange(len(table.names))
                plain.append(score_of(table, *(o.astype(np.float64) for o in order)))
                file_scores = files.scores(table.files)
                piece_scores = pieces.scores(table.pieces)
                learned.append(score_of(table, file_scores, piece_scores))
    return np.mean(plain, axis=0), np.mean(learned, axis=0)


# ------------------------------------------------------------------------------------------ command


def main() -> None:
    """Parse the command line and run `collect` or `train`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="write feature tables")
    collecting.add_argument("--issues", type=Path, help="development issues, JSONL")
    collecting.add_argument("--pairs", type=Path, help="what training.mining wrote")
    collecting.add_argument("--repos", type=Path, required=True, help="repositories, owner+name")
    collecting.add_argument("--cache", type=Path, required=True, help="folder of the index")
    collecting.add_argument("--tables", type=Path, required=True, help="folder to write to")
    training = commands.add_parser("train", help="fit the ensembles")
    training.add_argument("--tables", type=Path, required=True)
    training.add_argument("--output", type=Path, required=True, help="the ranker's file")
    options = parser.parse_args()
    if options.command == "collect":
        _collect(options)
    else:
        _train(options)


def _collect(options: argparse.Namespace) -> None:
    queries = [
        *(issue_queries(options.issues, options.repos) if options.issues else ()),
        *(commit_queries(options.pairs) if options.pairs else ()),
    ]
    began = time.monotonic()
    done = collect(queries, options.repos, options.tables, options.cache, lambda _: None)
    for number, (name, left_out) in enumerate(done, start=1):
        note = f" left out: {left_out}" if left_out else ""
        _say(f"{number}/{len(queries)} {name} {time.monotonic() - began:.0f} s{note}")


def _train(options: argparse.Namespace) -> None:
    tables = read_tables(options.tables)
    _say(f"{sum(t.issue for t in tables)} issues, {sum(not t.issue for t in tables)} commits")
    _say(f"{'':24}" + "".join(f"{name:>13}" for name in METRICS))
    plain, learned = cross_validate(tables)
    _say_row("plain sum", plain)
    _say_row("ranker, left out", learned)
    ranker = Ranker(
        fit(tables, files_of, FILE_NAMES, FILE_PARAMETERS),
        fit(tables, pieces_of, PIECE_NAMES, PIECE_PARAMETERS),
    )
    options.output.write_text(write_ranker(ranker))
    _say(f"{options.output}: {options.output.stat().st_size} bytes")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_row(name: str, values: NDArray[np.float64]) -> None:
    _say(f"{name:24}" + "".join(f"{100 * value:13.1f}" for value in values))


if __name__ == "__main__":
    main()
