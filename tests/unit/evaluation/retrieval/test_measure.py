from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.evaluation.retrieval.gold import SYMBOL, Gold, GoldEdit, GoldLines
from agent.evaluation.retrieval.measure import function_names, open_measurer
from agent.evaluation.retrieval.pool import MeasureJob, MeasureReply
from agent.evaluation.retrieval.result_files import ContextRange
from agent.settings import load
from agent.types import Chunk, ChunkKind, Ranking, ScoredChunk
from tests.support.evaluation import bare_repository, dataset_row
from tests.support.ignored_events import ignore


def measured(folder: Path, presets: tuple[str, ...] = ("lexical",), **row: object) -> MeasureReply:
    commit = bare_repository(folder)
    job = MeasureJob.model_validate(
        {
            "instance": dataset_row(commit, **row),
            "repository": str(folder / "owner__shop.git"),
            "presets": presets,
        }
    )

    async def run() -> MeasureReply:
        settings = {name: load({"preset": name}) for name in ("lexical", "original")}
        async with open_measurer(settings, (300, 24_000), ignore) as measurer:
            return await measurer.measure(job)

    return asyncio.run(run())


def test_a_row_and_the_answer_from_a_bare_repository(tmp_path: Path) -> None:
    reply = measured(tmp_path)
    assert reply.gold == Gold(
        files=("shop/basket.py",),
        functions=("shop/basket.py:Basket.total_price",),
        places=(GoldLines(path="shop/basket.py", lines=(8, 9)),),
        edits=(GoldEdit(path="shop/basket.py", lines=(9,)),),
    )
    assert reply.kinds == (SYMBOL,)
    assert [made.preset for made in reply.rows] == ["lexical"]
    row = reply.rows[0].row
    assert row.instance_id == "owner__shop-1"
    assert row.files[0] == "shop/basket.py"
    assert row.functions[0] == "shop/basket.py:Basket.total_price"
    assert "shop/basket.py:Basket" in row.functions
    assert "shop/basket.py:Basket.__init__" not in row.functions
    assert ContextRange(path="shop/basket.py", start=8, end=9) in row.context
    assert 0 < row.context_tokens <= 5100
    assert 0 < row.seconds < 10


def test_the_same_ranking_in_further_budgets(tmp_path: Path) -> None:
    (made,) = measured(tmp_path).rows
    small, large = made.budgets.budgets
    assert made.budgets.instance_id == made.row.instance_id
    assert (small.budget, large.budget) == (300, 24_000)
    assert small.context_tokens <= 255
    assert ContextRange(path="shop/basket.py", start=8, end=9) in large.context


def test_only_the_presets_without_a_row_are_run(tmp_path: Path) -> None:
    assert measured(tmp_path, presets=()).rows == ()


def test_presets_are_told_apart(tmp_path: Path) -> None:
    rows = {made.preset: made.row for made in measured(tmp_path, ("lexical", "original")).rows}
    # The original ranks whole files: they share the most words.
    whole = ContextRange(path="shop/basket.py", start=1, end=13)
    assert rows["original"].context == (whole,)
    assert whole not in rows["lexical"].context


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"base_commit": "1" * 40}, "no commit '1111"),
        ({"problem_statement": "  \n"}, "the problem is empty"),
    ],
)
def test_what_is_wrong_with_an_instance_is_a_reason_to_skip_it(
    tmp_path: Path, row: dict[str, str], why: str
) -> None:
    reply = measured(tmp_path, **row)
    assert why in reply.skipped
    assert reply.rows == ()


def test_functions_are_the_100_best_each_once_without_what_has_no_name() -> None:
    def chunk(symbol: str, kind: ChunkKind) -> ScoredChunk:
        return ScoredChunk(Chunk("a.py", 1, 2, symbol, kind, "x", "0" * 40, "python"), 1.0)

    ranking = Ranking(
        (
            chunk("", ChunkKind.MODULE),
            chunk("C.__init__", ChunkKind.METHOD),
            chunk("f", ChunkKind.FUNCTION),
            chunk("C", ChunkKind.CLASS),
            chunk("", ChunkKind.WINDOW),
            *(chunk(f"g{n}", ChunkKind.FUNCTION) for n in range(200)),
        ),
        (),
        205,
    )
    names = function_names(ranking)
    assert names[:4] == ("a.py:C", "a.py:f", "a.py:g0", "a.py:g1")
    assert len(names) == 100
