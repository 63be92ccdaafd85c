"""Instances measured in this process and by worker processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from agent.datasets import GoldInstance
from agent.errors import ConfigurationError
from agent.evaluation.retrieval.gold import SYMBOL, Gold, GoldEdit, GoldLines
from agent.evaluation.retrieval.measuring import (
    MeasureJob,
    Measurement,
    Measurer,
    WorkerStart,
    function_names,
    measure_all,
    share_of_cores,
)
from agent.evaluation.retrieval.rows import ContextRange
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
        async with open_retriever(settings, ignore, workers=1) as retriever:
            return await Measurer(settings, retriever, (300, 24_000), ignore).measure(job)

    return asyncio.run(run())


def test_a_row_and_the_answer_from_a_bare_repository(tmp_path: Path) -> None:
    reply = measured(tmp_path)
    row = reply.row
    assert row is not None
    assert row.gold == Gold(
        files=("shop/basket.py",),
        functions=("shop/basket.py:Basket.total_price",),
        places=(GoldLines(path="shop/basket.py", lines=(8, 9)),),
        edits=(GoldEdit(path="shop/basket.py", lines=(9,)),),
    )
    assert row.kinds == (SYMBOL,)
    assert row.instance_id == "owner__shop-1"
    assert row.files[0] == "shop/basket.py"
    assert row.functions[0] == "shop/basket.py:Basket.total_price"
    assert "shop/basket.py:Basket" in row.functions
    assert "shop/basket.py:Basket.__init__" not in row.functions
    assert BASKET in row.context
    assert 0 < row.context_tokens <= 5100
    assert 0 < row.seconds < 10


def test_each_further_budget_is_that_budget(tmp_path: Path) -> None:
    row = measured(tmp_path).row
    assert row is not None
    small, large = row.budgets
    assert (small.budget, large.budget) == (300, 24_000)
    assert small.context_tokens <= 255
    assert BASKET in large.context


def test_the_original_ranks_whole_files(tmp_path: Path) -> None:
    row = measured(tmp_path, "original").row
    assert row is not None
    assert row.context == (ContextRange(path="shop/basket.py", start=1, end=13),)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"base_commit": "1" * 40}, "no commit '1111"),
        ({"problem_statement": "  \n"}, "the problem is empty"),
    ],
)
def test_an_unusable_instance_is_skipped_with_the_reason(
    tmp_path: Path, row: dict[str, str], why: str
) -> None:
    reply = measured(tmp_path, **row)
    assert why in reply.skipped
    assert reply.row is None


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


def starts(count: int, **flags: object) -> list[WorkerStart]:
    given = {"preset": "lexical", **flags}
    return [WorkerStart(flags=given, number=n, workers=count) for n in range(count)]


def replies(
    work: Sequence[MeasureJob], workers: Sequence[WorkerStart], seconds: float
) -> list[Measurement]:
    with closing(measure_all(work, workers, seconds=seconds)) as measurements:
        return [reply for _, reply in measurements]


def test_all_jobs_are_done_by_several_processes(tmp_path: Path) -> None:
    work = jobs(tmp_path, 4)
    rows = [reply.row for reply in replies(work, starts(2), 60)]
    assert sorted(row.instance_id for row in rows if row is not None) == [
        job.instance.instance_id for job in work
    ]


def test_an_instance_that_takes_too_long_is_skipped(tmp_path: Path) -> None:
    measurements = replies(jobs(tmp_path, 2), starts(1), 1e-6)
    assert [reply.skipped for reply in measurements] == ["took longer than 1e-06 s"] * 2


@pytest.mark.slow
def test_a_worker_that_dies_costs_one_instance(tmp_path: Path) -> None:
    with closing(measure_all(jobs(tmp_path, 6), starts(1))) as measurements:
        next(measurements)
        multiprocessing.active_children()[0].kill()
        rest = [reply.skipped for _, reply in measurements]
    lost = "the worker process ended with exit code -9"
    assert sorted(rest) == ["", "", "", "", lost]


def test_a_setting_with_which_nothing_can_be_measured_ends_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--embed remote needs a model"):
        replies(jobs(tmp_path), starts(1, embed="remote", preset="default"), 60)


def test_no_thread_outlives_an_iteration_that_is_given_up(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with closing(measure_all(jobs(tmp_path, 20), starts(1))) as measurements:
        next(measurements)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (4, 2), (7, 3), (2, 5)])
def test_workers_share_the_cores(cores: int, workers: int) -> None:
    shares = [share_of_cores(range(cores), number, workers) for number in range(workers)]
    assert all(shares)
    assert set().union(*shares) == set(range(cores))
    if workers <= cores:
        assert sum(map(len, shares)) == cores
