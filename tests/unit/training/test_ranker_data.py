"""Queries and feature tables: from where, and from where never."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent.datasets import is_for_tuning
from agent.retrieval.ranking.signals import FILE_NAMES, PIECE_NAMES
from agent.types import ChunkKind
from tests.conftest import run_git
from tests.support.ignored_events import ignore
from training.pairs import FunctionText, Pair, write_pairs
from training.projects import RANKER_PROJECTS
from training.ranker_data import (
    TrainingQuery,
    collect,
    commit_queries,
    read_tables,
)

REPO = "ansible/ansible"
BANNED = ("django/django", "pytest-dev/pytest", "sphinx-doc/sphinx", "sympy/sympy")
SHOP = {
    "shop/basket.py": "class Basket:\n    def total_price(self):\n        return sum(self.items)\n",
    "shop/other.py": "def unrelated():\n    return 1\n",
}


def test_the_projects_of_the_ranker_are_those_to_tune_on() -> None:
    assert all(is_for_tuning(repo) for repo in RANKER_PROJECTS)
    assert not RANKER_PROJECTS.intersection(BANNED)


def pair(repo: str, number: int, *, fix: bool = True) -> Pair:
    function = FunctionText(
        path="shop/basket.py", symbol="Basket.__init__", kind=ChunkKind.METHOD,
        start=1, end=2, text="def __init__(self): ...",
    )  # fmt: skip
    return Pair(
        repo=repo, commit=f"{number:040x}", parent=f"{number + 1:040x}",
        subject="Fix Basket", body="It was wrong", fix=fix, test_added="assert Basket()",
        names_in_message=("Basket",), functions=(function,), negatives=(),
    )  # fmt: skip


def test_commits_are_repairs_in_projects_of_the_ranker_alone(tmp_path: Path) -> None:
    for repo in (REPO, "pallets/click", *BANNED):
        write_pairs(tmp_path, repo, [pair(repo, n, fix=n != 1) for n in range(3)])
    found = list(commit_queries(tmp_path))
    assert [query.name for query in found] == [f"{REPO}@{0:012x}", f"{REPO}@{0:012x}"[:-1] + "0"]
    assert all(not query.issue and query.repo == REPO for query in found)
    assert {query.gold for query in found} == {("shop/basket.py:Basket",)}
    assert [query.commit for query in found] == [f"{1:040x}", f"{3:040x}"]  # the parents
    assert found == list(commit_queries(tmp_path))


# ------------------------------------------------------------------------------------------ tables


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with the table of one query; one of a commit that is not there is left out."""
    repository = tmp_path / "repos" / REPO.replace("/", "+")
    for path, text in SHOP.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)
    run_git(repository, "init", "-q")
    run_git(repository, "add", "-A")
    run_git(repository, "commit", "-q", "-m", "base")
    commit = run_git(repository, "rev-parse", "HEAD").strip()
    gold = ("shop/basket.py:Basket.total_price", "shop/gone.py:f")
    query = TrainingQuery("one", REPO, commit, "Wrong total price\n\nof a basket", gold, issue=True)
    queries = [query, replace(query, name="two", commit="2" * 40)]
    folder = tmp_path / "tables"
    done = dict(collect(queries, tmp_path / "repos", folder, tmp_path / "cache", ignore))
    assert done["one"] == ""
    assert "no commit" in done["two"]
    assert list(collect(queries[:1], tmp_path / "repos", folder, tmp_path / "cache", ignore)) == []
    return folder


def test_a_table_holds_the_features_of_the_candidates(tables: Path) -> None:
    (table,) = read_tables(tables)
    assert (table.query, table.repo, table.issue) == ("one", REPO, True)
    assert table.pieces.shape == (len(table.names), len(PIECE_NAMES))
    assert table.files.shape == (len(table.paths), len(FILE_NAMES))
    assert table.pieces.dtype == table.files.dtype == np.float32
    assert [n for n, g in zip(table.names, table.piece_gold, strict=True) if g] == [table.gold[0]]
    assert [p for p, g in zip(table.paths, table.file_gold, strict=True) if g] == ["shop/basket.py"]
    assert table.pieces[:, 0].tolist() == sorted(table.pieces[:, 0].tolist(), reverse=True)
