"""Instances measured in this process and by worker processes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agent.datasets import GoldInstance
from agent.errors import ProblemError, RepositoryError
from agent.evaluation.retrieval import (
    ContextRange,
    Gold,
    GoldLines,
    MeasureJob,
    Measurement,
    function_names,
    measure,
    measure_all,
)
from agent.settings import load
from agent.types import Chunk, ChunkKind, Ranking, ScoredChunk
from agent.wiring import open_retriever
from tests.support.evaluation import bare_repository, dataset_row
from tests.support.ignored_events import ignore

BASKET = ContextRange(path="shop/basket.py", start=8, end=9)


def jobs(folder: Path, count: int = 1, **row: object) -> list[MeasureJob]:
    commit = bare_repository(folder)
    repository = str(folder / "owner__shop.git")
    rows = [dataset_row(commit, number + 1, **row) for number in range(count)]
    return [MeasureJob(GoldInstance.model_validate(one), repository) for one in rows]


def measured(folder: Path, preset: str = "lexical", **row: object) -> Measurement:
    (job,) = jobs(folder, **row)

    async def run() -> Measurement:
        settings = load({"preset": preset})
        async with open_retriever(settings, ignore) as retriever:
            return await measure(job, settings, retriever, (300, 24_000), ignore)

    return asyncio.run(run())


def test_a_row_and_the_answer_from_a_bare_repository(tmp_path: Path) -> None:
    row = measured(tmp_path).row
    assert row is not None
    assert row.gold == Gold(
        files=("shop/basket.py",),
        functions=("shop/basket.py:Basket.total_price",),
        places=(GoldLines(path="shop/basket.py", lines=(8, 9)),),
        edits=(GoldLines(path="shop/basket.py", lines=(9,)),),
    )
    assert row.instance_id == "owner__shop-1"
    assert row.files[0] == "shop/basket.py"
    assert row.functions[0] == "shop/basket.py:Basket.total_price"
    assert "shop/basket.py:Basket" in row.functions
    assert "shop/basket.py:Basket.__init__" not in row.functions
    assert BASKET in row.context
    assert 0 < row.context_tokens <= 5100
    assert 0 < row.seconds < 10
    small, large = row.budgets
    assert (small.budget, large.budget) == (300, 24_000)
    assert small.context_tokens <= 255
    assert BASKET in large.context


def test_the_original_ranks_whole_files(tmp_path: Path) -> None:
    row = measured(tmp_path, "original").row
    assert row is not None
    whole = ContextRange(path="shop/basket.py", start=1, end=13)
    assert row.context[:2] == (BASKET, whole)  # they may overlap


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"base_commit": "1" * 40}, "no commit '1111"),
        ({"problem_statement": "  \n"}, "the problem is empty"),
    ],
)
def test_an_unusable_instance_is_an_error_with_the_reason(
    tmp_path: Path, row: dict[str, str], why: str
) -> None:
    with pytest.raises((ProblemError, RepositoryError), match=why):
        measured(tmp_path, **row)


def test_functions_are_the_100_best_each_once_without_what_has_no_name() -> None:
    def chunk(symbol: str, kind: ChunkKind) -> ScoredChunk:
        return ScoredChunk(Chunk("a.py", 1, 2, symbol, kind, "x", "0" * 40, "python"), 1.0)

    ranking = Ranking(
        (
            chunk("", ChunkKind.MODULE),
            chunk("C.__init__", ChunkKind.METHOD),
            chunk("f", ChunkKind.FUNCTION),
            chunk("C", ChunkKind.CLASS),
            *(chunk(f"g{n}", ChunkKind.FUNCTION) for n in range(200)),
        ),
        (),
        205,
    )
    names = function_names(ranking)
    assert names[:3] == ("a.py:C", "a.py:f", "a.py:g0")
    assert len(names) == 100


# ------------------------------------------------------------------------------- worker processes


class Killer(MeasureJob):
    """A job that ends the process that reads it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (1,)


@pytest.mark.slow
def test_an_instance_that_kills_its_worker_is_skipped_alone(tmp_path: Path) -> None:
    good, bad = jobs(tmp_path, 2)
    killer = Killer(bad.instance, bad.repository)
    measured = dict(measure_all([killer, good], {"preset": "lexical"}, (), 1))
    assert measured[killer].skipped == "the worker process died"
    assert measured[good].row is not None
