from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.types import ChunkKind
from training.pairs import (
    FunctionText,
    Pair,
    pairs_path,
    read_pairs,
    write_pairs,
)

FUNCTION = FunctionText(
    path="shop/basket.py",
    symbol="Basket.__init__",
    kind=ChunkKind.METHOD,
    start=3,
    end=4,
    text="    def __init__(self):\n        pass",
)


def pair(repo: str = "acme/shop", subject: str = "Baskets are empty at first") -> Pair:
    return Pair(
        repo=repo,
        commit="a" * 40,
        parent="b" * 40,
        subject=subject,
        body="",
        fix=False,
        test_added="",
        names_in_message=(),
        functions=(FUNCTION,),
        negatives=(),
    )


def test_written_pairs_are_read_back_in_order_of_projects(tmp_path: Path) -> None:
    second = [pair("b/b", "line one of b"), pair("b/b", "zwei\u2028Zeilen \U0001f600")]
    write_pairs(tmp_path, "b/b", second)
    write_pairs(tmp_path, "a/a", [pair("a/a")])
    assert list(read_pairs(tmp_path)) == [pair("a/a"), *second]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a+a.jsonl", "b+b.jsonl"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", "repo: Field required"),
        ("no json", "row: Invalid JSON"),
        (pair().model_dump_json()[:-1] + ',"other":1}', "other: Extra inputs"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = pairs_path(tmp_path, "a/a")
    path.write_text(f"{pair().model_dump_json()}\n{line}\n")
    with pytest.raises(ConfigurationError) as raised:
        list(read_pairs(tmp_path))
    assert str(raised.value).startswith(f"{path}:2: {said}")
