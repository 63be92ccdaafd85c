"""Issues to learn from: of which projects, and which functions they change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.retrieval.index.chunking import TreeSitterChunker
from tests.conftest import run_git
from training.ranker_data import issue_queries, tuning_issues

SHOP = """class Basket:
    def __init__(self):
        self.items = []

    def total(self):
        def price(item):
            return item.price
        return sum(map(price, self.items))
"""


@pytest.fixture
def repositories(tmp_path: Path) -> Path:
    """A folder with one project to tune on and one that is held out, of the same files."""
    for repo in ("fastapi+fastapi", "scrapy+scrapy"):
        (tmp_path / repo / "tests").mkdir(parents=True)
        (tmp_path / repo / "shop.py").write_text(SHOP)
        (tmp_path / repo / "tests" / "test_shop.py").write_text("def test_total(): ...\n")
        run_git(tmp_path / repo, "init", "-q")
        run_git(tmp_path / repo, "add", "-A")
        run_git(tmp_path / repo, "commit", "-q", "-m", "base")
    return tmp_path


def rows(repositories: Path, *answers: list[str], repo: str = "fastapi/fastapi") -> Path:
    place = repositories / repo.replace("/", "+")
    known = {
        "repo": repo,
        "base_commit": run_git(place, "rev-parse", "HEAD").strip(),
        "problem_statement": "The total is wrong",
    }
    lines = (
        json.dumps({**known, "instance_id": f"{repo}-{number}", "gold_functions": answer})
        for number, answer in enumerate(answers)
    )
    (repositories / "d.jsonl").write_text("\n".join(lines))
    return repositories / "d.jsonl"


def functions(dataset: Path, repositories: Path) -> list[tuple[str, ...]]:
    found = tuning_issues(dataset, repositories, TreeSitterChunker())
    return [issue.functions for issue in found]


@pytest.mark.parametrize(
    ("written", "counted"),
    [
        ("shop.py:Basket.total", "shop.py:Basket.total"),
        ("shop.py:Basket.__init__", "shop.py:Basket"),
        ("shop.py:Basket.total.price", "shop.py:Basket.total"),
    ],
)
def test_functions_have_the_names_that_the_index_gives_them(
    repositories: Path, written: str, counted: str
) -> None:
    assert functions(rows(repositories, [written]), repositories) == [(counted,)]


def test_an_issue_without_an_existing_function_that_is_no_test_is_left_out(
    repositories: Path,
) -> None:
    answers: tuple[list[str], ...] = (
        [],
        ["shop.py:gone"],
        ["tests/test_shop.py:test_total"],
        ["shop.py:gone", "shop.py:Basket.total", "tests/test_shop.py:test_total"],
    )
    dataset = rows(repositories, *answers)
    assert functions(dataset, repositories) == [("shop.py:Basket.total",)]
    (query,) = issue_queries(dataset, repositories)
    assert (query.name, query.repo) == ("fastapi/fastapi-3", "fastapi/fastapi")
    assert query.gold == ("shop.py:Basket.total",)
    assert query.issue


def test_held_out_projects_and_those_not_fetched_are_left_out(repositories: Path) -> None:
    answer = ["shop.py:Basket.total"]
    assert not functions(rows(repositories, answer, repo="scrapy/scrapy"), repositories)
    (repositories / "fastapi+fastapi").rename(repositories / "elsewhere")
    dataset = repositories / "d.jsonl"
    dataset.write_text(dataset.read_text().replace("scrapy/scrapy", "fastapi/fastapi"))
    assert not functions(dataset, repositories)
