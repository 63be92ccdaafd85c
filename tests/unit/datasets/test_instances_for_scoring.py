"""The index of rows for scoring: found by id, streamed, reported with line and field."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.instances import RowIndex, ScoringInstance
from agent.datasets.rows import InputProblem, RowSelection, make_selection
from agent.errors import ConfigurationError


def row(number: int, **other: Any) -> dict[str, Any]:
    return {
        "instance_id": f"o__a-{number}",
        "repo": "o/a",
        "base_commit": "0" * 40,
        "test_patch": "t",
        "FAIL_TO_PASS": ["tests/test_a.py::test_x"],
        "PASS_TO_PASS": "[]",
        "unknown": {"x": 1},
        **other,
    }


def written(folder: Path, *lines: object) -> Path:
    path = folder / "set.jsonl"
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    return path


def test_rows_are_found_by_id(tmp_path: Path) -> None:
    path = written(tmp_path, row(1), "", row(2, version="5.2", patch="g"), row(3))

    rows = RowIndex(path, RowSelection(), {"o__a-2", "o__a-9"})

    assert rows.ids == ["o__a-1", "o__a-2", "o__a-3"]
    assert (rows.has("o__a-2"), rows.has("o__a-1"), rows.has("o__a-9")) == (True, False, False)
    assert rows.read("o__a-2") == ScoringInstance(
        instance_id="o__a-2",
        repo="o/a",
        base_commit="0" * 40,
        test_patch="t",
        patch="g",
        version="5.2",
        FAIL_TO_PASS=("tests/test_a.py::test_x",),
        PASS_TO_PASS=(),
    )


def test_an_array_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_text(json.dumps([row(1), row(2)], indent=1))

    rows = RowIndex(path, RowSelection(), None)

    assert rows.ids == ["o__a-1", "o__a-2"]
    assert isinstance(rows.read("o__a-2"), ScoringInstance)


def test_what_cannot_be_used_is_told_with_line_and_field(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        row(1, base_commit="main"),
        "{nonsense",
        {"repo": "o/a"},
        row(4, FAIL_TO_PASS="[]"),
        row(1),
        row(6, PASS_TO_PASS="not a list"),
        "7",
    )

    rows = RowIndex(path, RowSelection(), None)

    assert [(p.kind, p.place) for p in rows.problems] == [
        ("bad-row", f"{path}:2"),
        ("bad-row", f"{path}:3"),
        ("duplicate-row", f"{path}:5"),
        ("bad-row", f"{path}:7"),
    ]
    assert rows.problems[1].reason == "instance_id: a text is needed"
    assert rows.problems[2].reason == f"o__a-1 again, first at {path}:1; the first counts"
    found = {name: rows.read(name) for name in rows.ids}
    assert all(isinstance(problem, InputProblem) for problem in found.values())
    texts = {name: str(getattr(problem, "reason", "")) for name, problem in found.items()}
    assert texts["o__a-1"] == "base_commit: a commit as 7 to 40 hex digits in lower case is needed"
    assert texts["o__a-4"] == "FAIL_TO_PASS, PASS_TO_PASS: no test decides"
    assert texts["o__a-6"].startswith("PASS_TO_PASS: a list of test ids such as")


def test_rows_that_no_prediction_is_for_are_told_too_and_do_not_count(tmp_path: Path) -> None:
    path = written(tmp_path, row(1), {"instance_id": "x"}, row(3))

    rows = RowIndex(path, RowSelection(), {"o__a-1"})

    assert rows.ids == ["o__a-1", "o__a-3"]
    (problem,) = rows.problems
    assert (problem.place, problem.instance_id) == (f"{path}:2", "x")
    assert problem.reason == 'repo: is missing (a text such as "owner/name")'


def test_a_field_that_is_mistyped_is_guessed(tmp_path: Path) -> None:
    other = {name: value for name, value in row(1).items() if name != "base_commit"}

    found = RowIndex(written(tmp_path, {**other, "base_comit": "0" * 40}), RowSelection(), None)

    problem = found.read("o__a-1")
    assert isinstance(problem, InputProblem)
    assert problem.reason.startswith("base_commit: is missing (a commit as")
    assert problem.reason.endswith("did you mean 'base_comit'?")


def test_only_selected_rows_count(tmp_path: Path) -> None:
    path = written(tmp_path, *(row(number) for number in range(1, 6)))

    assert RowIndex(path, make_selection((), "1:3", None), None).ids == ["o__a-2", "o__a-3"]
    assert RowIndex(path, make_selection((), None, "[45]$"), None).ids == ["o__a-4", "o__a-5"]


def test_a_large_set_is_never_held(tmp_path: Path) -> None:
    """Of 5,000 rows of 8 KB (40 MB) ids and places are kept, and the rows that are asked for."""
    path = tmp_path / "set.jsonl"
    with path.open("w", encoding="ascii") as file:
        for number in range(5_000):
            file.write(json.dumps(row(number, problem_statement="x" * 8000)) + "\n")
    tracemalloc.start()

    rows = RowIndex(path, RowSelection(), {"o__a-4999"})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(rows.ids) == 5_000
    assert isinstance(rows.read("o__a-4999"), ScoringInstance)
    assert peak < 5_000_000


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        RowIndex(tmp_path / "none.jsonl", RowSelection(), None)
