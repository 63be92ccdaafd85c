from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.types import ChunkKind
from training.pairs import (
    FunctionText,
    Pair,
    PairsManifest,
    ProjectSummary,
    pairs_path,
    read_manifest,
    read_pairs,
    write_manifest,
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


def summary(repo: str) -> ProjectSummary:
    return ProjectSummary(
        repo=repo, tip="a" * 40, rules=1, max_commits=1, max_pairs=1, first="a" * 40,
        last="a" * 40, seen=1, eligible=1, kept=1, fixes=0, functions=1, named=0,
    )  # fmt: skip


def test_written_pairs_are_read_back_in_order_of_projects(tmp_path: Path) -> None:
    second = [pair("b/b", "line one of b"), pair("b/b", "zwei\u2028Zeilen \U0001f600")]
    write_pairs(tmp_path, "b/b", second)
    write_pairs(tmp_path, "a/a", [pair("a/a")])
    assert list(read_pairs(tmp_path)) == [pair("a/a"), *second]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a+a.jsonl", "b+b.jsonl"]


def test_names_are_those_of_the_evaluation() -> None:
    assert (FUNCTION.name, FUNCTION.leaf) == ("shop/basket.py:Basket", "Basket")
    method = FUNCTION.model_copy(update={"symbol": "Basket.clear"})
    assert (method.name, method.leaf) == ("shop/basket.py:Basket.clear", "clear")


def test_a_folder_without_pairs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no pairs; run"):
        list(read_pairs(tmp_path))


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


def test_writing_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_pairs(tmp_path, "a/a", [pair()])

    def torn() -> object:
        yield pair()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pairs(tmp_path, "a/a", torn())  # type: ignore[arg-type]
    assert list(read_pairs(tmp_path)) == [pair()]
    assert [path.name for path in tmp_path.iterdir()] == ["a+a.jsonl"]


def test_the_manifest_is_sorted_and_read_back(tmp_path: Path) -> None:
    write_manifest(tmp_path, PairsManifest(projects=(summary("b/b"), summary("a/a"))))
    assert read_manifest(tmp_path) == PairsManifest(projects=(summary("a/a"), summary("b/b")))


@pytest.mark.parametrize("text", [None, "", '{"projects": 1}'])
def test_no_manifest_or_another_form_is_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    assert read_manifest(tmp_path) is None
