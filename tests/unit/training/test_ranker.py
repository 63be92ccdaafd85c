"""What LightGBM learns is what numpy runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.retrieval.ranking.signals import FILE_NAMES, PIECE_NAMES
from tests.support.models import rows_at_random
from training import ranker as module
from training.ranker import cross_validate, fit, from_dump, score_of
from training.ranker_data import Table

NAMES = ("score", "a", "b", "c", "d")


def split(feature: int, threshold: float, left: Any, right: Any, value: float = 0.0) -> Any:
    return {
        "split_feature": feature, "threshold": threshold, "internal_value": value,
        "left_child": left, "right_child": right,
    }  # fmt: skip


def leaf(value: float) -> Any:
    return {"leaf_value": value}


def dump_of(*trees: Any) -> Any:
    return {"tree_info": [{"tree_structure": tree} for tree in trees]}


def test_a_dump_becomes_trees() -> None:
    tree = split(1, 0.5, leaf(-1.0), split(2, 0.25, leaf(1.0), leaf(3.0), 2.0), 0.5)
    ensemble = from_dump(dump_of(tree, leaf(10.0)), NAMES)
    assert ensemble.names == NAMES
    assert ensemble.roots.tolist() == [0, 5]
    assert ensemble.feature.tolist() == [1, -1, 2, -1, -1, -1]
    rows = np.array([[0, 0.5, 9, 0, 0], [0, 0.75, 0.25, 0, 0], [0, 1, 1, 0, 0]], np.float32)
    assert ensemble.scores(rows).tolist() == [9.0, 11.0, 13.0]


@pytest.mark.parametrize("threshold", [0.1, 1 / 3, 1e-45, 1.0, -0.7, 16777217.0, 0.0])
def test_float32_values_fall_on_the_side_that_float64_says(threshold: float) -> None:
    ensemble = from_dump(dump_of(split(1, threshold, leaf(-1.0), leaf(1.0))), NAMES)
    near = np.float32(threshold)
    values = [
        np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf)),
    ]  # fmt: skip
    rows = np.zeros((3, 5), np.float32)
    rows[:, 1] = values
    wanted = [-1.0 if float(value) <= threshold else 1.0 for value in values]
    assert ensemble.scores(rows).tolist() == wanted


def random_table(number: int, repo: str, issue: bool = True) -> Table:
    """Files and pieces whose second feature tells what is to be found."""
    pieces = rows_at_random(PIECE_NAMES, 30, number)
    files = rows_at_random(FILE_NAMES, 10, number + 1000)
    for rows in (pieces, files):
        rows[:, 0] = np.sort(rows[:, 0])[::-1]
    piece, file = int(pieces[:, 2].argmax()), int(files[:, 2].argmax())
    names = [f"f{file}.py:gold" if n == piece else f"f{n % 10}.py:g{n}" for n in range(30)]
    paths = [f"f{n}.py" for n in range(10)]
    gold = (f"f{file}.py:gold",)
    return Table(f"q{number}", repo, issue, gold, tuple(names), tuple(paths), pieces, files)


FEW = {"rounds": 10, "num_threads": 1, "learning_rate": 0.5, "num_leaves": 8}


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[Table]:
    """Some queries, to be learned from quickly: few rounds, on one core."""
    monkeypatch.setattr(module, "FILE_PARAMETERS", FEW)
    monkeypatch.setattr(module, "PIECE_PARAMETERS", FEW)
    monkeypatch.setattr(module, "FOLDS", 2)
    return [random_table(n, f"owner/project{n % 4}", issue=n % 5 > 0) for n in range(40)]


def test_fit_predicts_what_lightgbm_predicts(
    tables: list[Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    made: list[Any] = []
    train = lightgbm.train

    def kept(*arguments: Any, **named: Any) -> Any:
        made.append(train(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(lightgbm, "train", kept)
    ensemble = fit(tables, module.pieces_of, PIECE_NAMES, FEW)
    rows = rows_at_random(PIECE_NAMES, 200, 9)
    # LightGBM leaves the initial score, here the plain sum, out of its predictions.
    wanted: NDArray[np.float64] = made[0].predict(rows) + module.SLOPE * rows[:, 0].astype(float)
    found = ensemble.scores(rows)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    again = fit(tables, module.pieces_of, PIECE_NAMES, FEW)
    np.testing.assert_array_equal(again.scores(rows), ensemble.scores(rows))


def test_leaving_projects_out_shows_what_was_learned(tables: list[Table]) -> None:
    pytest.importorskip("lightgbm")
    plain, learned = cross_validate(tables)
    assert plain.shape == learned.shape == (len(module.METRICS),)
    assert learned[0] > plain[0] + 0.3  # the second feature tells; the plain sum does not


def test_scores_count_all_that_is_to_be_found() -> None:
    table = random_table(1, "owner/project")
    wanted = np.array([name in table.gold for name in table.names], float)
    path = table.gold[0].partition(":")[0]
    files = np.array([found == path for found in table.paths], float)
    assert score_of(table, files, wanted) == (True,) * 6
    assert score_of(table, -files, -wanted) == (False,) * 6
