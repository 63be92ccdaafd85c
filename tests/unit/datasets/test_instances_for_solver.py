"""What a solver is told of a data set: which rows, in which order, and nothing of the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.datasets.instances import SolverTask, read_instances
from agent.datasets.rows import InputProblem, RowSelection, make_selection
from agent.errors import ConfigurationError

SECRETS = {"patch": "GOLD", "test_patch": "GOLD", "FAIL_TO_PASS": ["GOLD"], "hints_text": "GOLD"}


def row(number: int, **other: Any) -> dict[str, Any]:
    return {
        "instance_id": f"owner__shop-{number}",
        "repo": "owner/shop",
        "base_commit": "a" * 40,
        "problem_statement": f"issue {number}",
        **other,
    }


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return path


def ids(path: Path, selection: RowSelection | None = None) -> list[str]:
    read = read_instances(path, SolverTask, selection or RowSelection())
    return [r.instance_id if isinstance(r, SolverTask) else f"!{r.place}" for r in read]


def test_what_cannot_be_used_is_told_with_its_line_and_the_others_go_on(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "d.jsonl",
        row(1),
        "{broken",
        "",
        row(2, repo="no owner"),
        {"instance_id": "x"},
        row(1),
        row(3),
    )
    found = list(read_instances(path, SolverTask, RowSelection()))
    assert [r.instance_id for r in found if isinstance(r, SolverTask)] == [
        "owner__shop-1",
        "owner__shop-3",
    ]
    bad = {r.place: r.reason for r in found if isinstance(r, InputProblem)}
    assert list(bad) == [f"{path}:{n}" for n in (2, 4, 5, 6)]
    assert bad[f"{path}:2"].startswith("not valid JSON")
    assert bad[f"{path}:4"].startswith("repo: ")
    assert bad[f"{path}:5"].startswith('repo: is missing (a text such as "owner/name")')
    assert bad[f"{path}:6"] == f"owner__shop-1 again, first at {path}:1; the first counts"


def test_mistakes_in_rows_are_told_in_plain_words(tmp_path: Path) -> None:
    path = lines(tmp_path / "d.jsonl", "7", row(1, base_commit="main"))
    told = [
        r.reason
        for r in read_instances(path, SolverTask, RowSelection())
        if isinstance(r, InputProblem)
    ]
    assert told == [
        "not a JSON object",
        "base_commit: a commit as 7 to 40 hex digits in lower case is needed",
    ]


def test_an_array_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text("\ufeff" + json.dumps([row(1), {}, row(2)], indent=1))
    assert ids(path) == ["owner__shop-1", f"!{path}: row 2", "owner__shop-2"]
    path.write_text("\ufeff" + json.dumps(row(7)))
    assert ids(path) == ["owner__shop-7"]


def test_filters_by_id_slice_and_expression(tmp_path: Path) -> None:
    path = lines(tmp_path / "d.jsonl", *map(row, range(1, 13)), "{broken")
    assert ids(path, make_selection(("owner__shop-3",), None, None)) == ["owner__shop-3"]
    assert ids(path, make_selection((), "1:3", None)) == ["owner__shop-2", "owner__shop-3"]
    assert ids(path, make_selection((), "11:", None)) == ["owner__shop-12", f"!{path}:13"]
    assert ids(path, make_selection((), None, "shop-1.$")) == [
        f"owner__shop-{n}" for n in (10, 11, 12)
    ]
    assert ids(path, make_selection((), ":10", "shop-1")) == ["owner__shop-1", "owner__shop-10"]


@pytest.mark.parametrize("bad", ["5", "a:b", "1:2:3", "-1:2", "\u0661:2"])
def test_a_slice_that_is_none(bad: str) -> None:
    with pytest.raises(ConfigurationError, match="--slice"):
        make_selection((), bad, None)


def test_an_expression_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match="--match"):
        make_selection((), None, "(")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("gone", None, "no such file"), ("d", "[1,", "not valid JSON")],
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        list(read_instances(path, SolverTask, RowSelection()))


def test_nothing_of_the_answer_goes_on(tmp_path: Path) -> None:
    path = lines(tmp_path / "d.jsonl", row(1, **SECRETS))
    (task,) = read_instances(path, SolverTask, RowSelection())
    assert isinstance(task, SolverTask)
    assert "GOLD" not in task.model_dump_json()


def task(name: str) -> SolverTask:
    return SolverTask.model_validate(row(1, instance_id=name))


def test_a_plain_id_is_its_folder() -> None:
    assert task("django__django-11099").folder_name == "django__django-11099"


@given(st.text(min_size=1, max_size=300))
def test_any_id_has_a_folder_of_its_own_inside_the_run(name: str) -> None:
    folder = task(name).folder_name
    assert Path(folder).name == folder
    assert folder not in (".", "..")
    assert len(folder.encode()) <= 120
    assert folder != task(name + "/").folder_name
