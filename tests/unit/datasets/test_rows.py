"""The one reader of data sets: places, byte offsets, and lines that are too long."""

from __future__ import annotations

import json
from pathlib import Path

from agent.datasets.rows import DatasetRow, read_rows


def test_each_row_has_its_place_and_where_its_line_is(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes('\ufeff{"a": 1}\n\n{broken\n["é"]'.encode())

    rows = list(read_rows(path))

    assert rows[0] == DatasetRow(f"{path}:1", {"a": 1})
    assert (rows[1].place, rows[1].mistake[:14]) == (f"{path}:3", "not valid JSON")
    assert rows[2] == DatasetRow(f"{path}:4", ["é"])


def test_a_row_of_an_array_has_its_number_and_no_line(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_text(json.dumps([{"instance_id": "a"}, 7], indent=1))

    rows = list(read_rows(path))

    assert rows == [
        DatasetRow(f"{path}: row 1", {"instance_id": "a"}),
        DatasetRow(f"{path}: row 2", 7),
    ]
    assert [row.instance_id for row in rows] == ["a", ""]


def test_a_line_that_is_too_long_is_refused_as_such_and_the_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(f'{{"a": 1}}\n"{"x" * 40}"\n"{"y" * 14}"\n"{"z" * 15}"\n7\n"{"x" * 16}')

    rows = list(read_rows(path, longest=16))

    too_long = "longer than 16 bytes; give one row a line"
    assert rows == [
        DatasetRow(f"{path}:1", {"a": 1}),
        DatasetRow(f"{path}:2", mistake=too_long),
        DatasetRow(f"{path}:3", "y" * 14),
        DatasetRow(f"{path}:4", mistake=too_long),
        DatasetRow(f"{path}:5", 7),
        DatasetRow(f"{path}:6", mistake=too_long),
    ]
