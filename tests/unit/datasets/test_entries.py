"""Entries of data sets and predictions: what each reader gets, and what cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.datasets import (
    GoldInstance,
    InputProblem,
    Prediction,
    ScoringInstance,
    SolverTask,
    folder_name,
    is_for_tuning,
    load_dataset,
    make_selection,
    part_of,
    read_entries,
)
from agent.errors import ConfigurationError

ANSWER = {"patch": "GOLD", "test_patch": "GOLD", "FAIL_TO_PASS": '["GOLD"]', "hints_text": "GOLD"}


def row(number: int, **other: Any) -> dict[str, Any]:
    return {
        "instance_id": f"o__p-{number}",
        "repo": "o/p",
        "base_commit": "0" * 40,
        "problem_statement": f"issue {number}",
        **other,
    }


def written(folder: Path, *rows: object, name: str = "d.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return path


def ids(path: Path, *selection: Any) -> list[str]:
    entries = read_entries(path, SolverTask, make_selection(*selection) if selection else None)
    return [e.instance_id if isinstance(e, SolverTask) else f"!{e.place}" for e in entries]


@pytest.mark.parametrize("indent", [None, 1])
def test_lines_and_arrays_give_the_same(tmp_path: Path, indent: int | None) -> None:
    lines = written(tmp_path, f"\ufeff{json.dumps(row(1))}", "", row(2))
    assert ids(lines) == ["o__p-1", "o__p-2"]
    array = tmp_path / "d.json"
    array.write_text("\ufeff" + json.dumps([row(1), {}, row(2)], indent=indent))
    assert ids(array) == ["o__p-1", f"!{array}: row 2", "o__p-2"]


def test_each_reader_gets_only_what_it_may_know(tmp_path: Path) -> None:
    path = written(tmp_path, row(1, **ANSWER, version="5.2"))
    (task,) = read_entries(path, SolverTask)
    assert "GOLD" not in repr(task)
    (scoring,) = read_entries(path, ScoringInstance)
    assert scoring == ScoringInstance(
        instance_id="o__p-1",
        repo="o/p",
        base_commit="0" * 40,
        test_patch="GOLD",
        patch="GOLD",
        version="5.2",
        FAIL_TO_PASS=("GOLD",),
    )


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "not valid JSON"),
        ("3", "not a JSON object"),
        (row(2, repo="../p"), "repo: "),
        (row(2, repo="o/.."), "repo: "),
        (row(2, base_commit="--upload-pack=x"), "base_commit: "),
        (row(2, instance_id=3), "instance_id: "),
        (row(2, gold_functions=["f"]), "gold_functions.0: "),
        (row(2, patch="@@ -1 +1 @@\n-a\n+b"), "patch: "),
        (row(1), "o__p-1 again, first at "),
        ({"instance_id": "x", "repo": "o/p", "base_commit": "0" * 40}, "problem_statement: "),
    ],
)
def test_a_bad_row_is_named_and_the_others_go_on(tmp_path: Path, bad: object, reason: str) -> None:
    path = written(tmp_path, row(1), bad, row(3))
    first, problem, third = read_entries(path, GoldInstance)
    assert (first.instance_id, third.instance_id) == ("o__p-1", "o__p-3")
    assert isinstance(problem, InputProblem)
    assert (problem.place, problem.reason[: len(reason)]) == (f"{path}:2", reason)
    with pytest.raises(ConfigurationError) as caught:
        load_dataset(path)
    assert str(caught.value).startswith(f"{path}:2: {reason}")
    assert "\n" not in str(caught.value)


def test_a_line_that_is_too_long_ends_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.datasets.rows.LONGEST_ROW", 200)
    path = written(tmp_path, row(1), row(2, problem_statement="x" * 200), row(3))
    assert ids(path) == ["o__p-1", f"!{path}:2"]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe{}", b"[1,"])
def test_a_file_without_rows(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError):
        load_dataset(path)
    with pytest.raises(ConfigurationError, match=r"--dataset .*none: No such file"):
        load_dataset(tmp_path / "none")


@pytest.mark.parametrize(
    ("selection", "numbers"),
    [
        ((("o__p-3",), None, None), [3]),
        (((), "1:3", None), [2, 3]),
        (((), None, "p-1.$"), [10, 11, 12]),
        (((), ":10", "p-1"), [1, 10]),
    ],
)
def test_filters_by_id_slice_and_expression(
    tmp_path: Path, selection: tuple[Any, ...], numbers: list[int]
) -> None:
    path = written(tmp_path, *map(row, range(1, 13)), "{broken")
    assert ids(path, *selection) == [f"o__p-{number}" for number in numbers]
    assert ids(path, (), "11:", None) == ["o__p-12", f"!{path}:13"]


@pytest.mark.parametrize("bad", ["5", "a:b", "1:2:3", "-1:2", "\u0661:2"])
def test_a_slice_or_an_expression_that_is_none(bad: str) -> None:
    with pytest.raises(ConfigurationError, match="--slice"):
        make_selection((), bad, None)
    with pytest.raises(ConfigurationError, match="--match"):
        make_selection((), None, "(")


@given(st.text(min_size=1, max_size=300))
def test_any_id_has_a_folder_of_its_own_inside_the_run(name: str) -> None:
    assert folder_name("django__django-11099") == "django__django-11099"
    folder = folder_name(name)
    assert Path(folder).name == folder
    assert folder not in (".", "..")
    assert len(folder.encode()) <= 120
    assert folder != folder_name(name + "/")


# ------------------------------------------------------------------------------------------- split


def test_the_split_is_by_project_and_never_changes() -> None:
    # Pinned: what was tuned on must not become held out with a later version.
    tuning = {"ansible/ansible", "fastapi/fastapi", "pandas-dev/pandas", "localstack/localstack"}
    held_out = {"scrapy/scrapy", "keras-team/keras", "Textualize/rich", "nvbn/thefuck"}
    assert {repo for repo in tuning | held_out if is_for_tuning(repo)} == tuning
    assert is_for_tuning("yt-dlp/yt-dlp") == is_for_tuning("ytdl-org/youtube-dl")
    assert is_for_tuning("Scrapy/Scrapy") == is_for_tuning("scrapy/scrapy")


def test_the_two_sides_are_about_60_to_40_and_together_all() -> None:
    rows = tuple(GoldInstance(**row(n, repo=f"owner/project{n // 2}")) for n in range(2000))
    tune, held_out = part_of(rows, "tune"), part_of(rows, "held-out")
    assert part_of(rows, "all") == rows
    assert sorted(one.instance_id for one in (*tune, *held_out)) == sorted(
        one.instance_id for one in rows
    )
    assert {one.repo for one in tune}.isdisjoint(one.repo for one in held_out)
    assert 1120 < len(tune) < 1280


# ------------------------------------------------------------------------------------- predictions

FIRST = {"instance_id": "o__p-1", "model_name_or_path": "m", "model_patch": "diff 1"}
SECOND = {"instance_id": "o__p-2", "model_name_or_path": "m", "model_patch": None}


def predictions(path: Path) -> list[Prediction | InputProblem]:
    return list(read_entries(path, Prediction, option="--predictions"))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"o__p-1": FIRST, "o__p-2": SECOND}, indent=1),
        json.dumps({"o__p-1": {**FIRST, "other": 1}, "o__p-2": {"model_patch": None}}),
        json.dumps([FIRST, SECOND]),
        f"{json.dumps(FIRST)}\n\n{json.dumps(SECOND)}\n",
    ],
)
@pytest.mark.parametrize("name", ["preds.json", "all_preds.jsonl"])
def test_all_forms_say_the_same(tmp_path: Path, text: str, name: str) -> None:
    first, second = predictions(written(tmp_path, text, name=name))
    assert first == Prediction.model_validate(FIRST)
    assert (second.instance_id, second.model_patch) == ("o__p-2", None)


def test_one_line_is_an_entry_and_no_dictionary(tmp_path: Path) -> None:
    assert predictions(written(tmp_path, FIRST)) == [Prediction.model_validate(FIRST)]


def test_predictions_that_cannot_be_used_are_named_with_their_place(tmp_path: Path) -> None:
    path = written(tmp_path, FIRST, '{"instance_id": "a"}', {**SECOND, "model_patch": 7}, FIRST)
    first, *problems = predictions(path)
    assert first == Prediction.model_validate(FIRST)
    assert [(p.place.removeprefix(f"{path}:"), p.instance_id) for p in problems] == [
        ("2", "a"),
        ("3", "o__p-2"),
        ("4", "o__p-1"),
    ]
    with pytest.raises(ConfigurationError, match="--predictions"):
        predictions(tmp_path / "none.json")


@pytest.mark.parametrize(("patch", "expected"), [(None, ""), ("", ""), (" \n", ""), ("d\n", "d\n")])
def test_blank_text_is_no_patch(patch: str | None, expected: str) -> None:
    assert Prediction(instance_id="a", model_patch=patch).patch == expected
