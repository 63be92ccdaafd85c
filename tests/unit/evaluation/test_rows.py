from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.evaluation.rows import BudgetRow, Row, RowFile
from tests.support.full_disk import full_at


def row(name: str) -> Row:
    return Row.model_validate(
        {
            "instance_id": name,
            "files": ("a.py",),
            "functions": ("a.py:f",),
            "context": ({"path": "a.py", "start": 1, "end": 2},),
            "context_tokens": 7,
            "seconds": 0.5,
        }
    )


def test_a_row_is_written_as_the_contract_says(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, Row) as file:
        file.append(row("1"))
    assert json.loads(path.read_text()) == {
        "instance_id": "1",
        "files": ["a.py"],
        "functions": ["a.py:f"],
        "context": [{"path": "a.py", "start": 1, "end": 2}],
        "context_tokens": 7,
        "seconds": 0.5,
    }


def test_rows_are_on_disk_at_once_and_there_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, Row) as file:
        file.append(row("1"))
        assert path.read_bytes().endswith(b"}\n")
    with RowFile(path, Row) as file:
        assert file.rows == {"1": row("1")}
        file.append(row("2"))
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize("length", [1, 5, 20, 60])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, length: int) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, Row) as file:
        file.append(row("1"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:length])
    with RowFile(path, Row) as file:
        assert list(file.rows) == ["1"]
        file.append(row("2"))
    with RowFile(path, Row) as file:
        assert list(file.rows) == ["1", "2"]


@pytest.mark.parametrize(
    "content",
    ['{"instance_id": "1"}\n', "some text\n", '{"model": "x"}', "x", '{"instance_id": "1", "a"'],
)
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"r\.jsonl:1: not a row"):
        RowFile(path, Row)
    assert path.read_text() == content


def test_restart_begins_with_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("some text\n")
    with RowFile(path, Row, restart=True) as file:
        assert not file.rows
        assert path.read_text() == "some text\n"  # nothing is lost before something can replace it
        file.begin()
    assert path.read_bytes() == b""


def test_a_full_disk_is_said_of_the_output(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, Row) as file:
        file.append(row("1"))
        kept = path.read_bytes()
        with (
            full_at(len(kept) + 10),
            pytest.raises(ConfigurationError, match=r"--output .*r\.jsonl: File too large; free"),
        ):
            file.append(row("2"))
    with RowFile(path, Row) as file:
        assert list(file.rows) == ["1"]
    assert path.read_bytes() == kept


def test_rows_are_sorted_into_the_order_of_the_data_set(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, Row) as file:
        for name in ("3", "other", "1", "2", "3"):
            file.append(row(name))
        file.sort(["1", "2", "3"])
    lines = [json.loads(line)["instance_id"] for line in path.read_text().splitlines()]
    assert lines == ["other", "1", "2", "3"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.jsonl"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a file"):
        RowFile(tmp_path, Row)
    with pytest.raises(ConfigurationError, match="No such file"):
        RowFile(tmp_path / "none" / "r.jsonl", Row)


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, BudgetRow) as file:
        file.append(BudgetRow(instance_id="1", budgets=()))
    with pytest.raises(ConfigurationError, match=r"r\.jsonl:1: not a row"):
        RowFile(path, Row)
