from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.instances import GoldInstance, is_for_tuning, load_dataset, part_of
from agent.errors import ConfigurationError

ROW: dict[str, Any] = {
    "instance_id": "o__p-1",
    "repo": "o/p",
    "base_commit": "0" * 40,
    "problem_statement": "It breaks",
}


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_lines_and_arrays_give_the_same(tmp_path: Path) -> None:
    gold = {**ROW, "instance_id": "o__p-2", "gold_functions": ["a.py:f"], "hints_text": "ignored"}
    lines = written(tmp_path / "a.jsonl", ROW, gold)
    array = tmp_path / "a.json"
    array.write_text(json.dumps([ROW, gold], indent=1))
    expected = (
        GoldInstance(**ROW),
        GoldInstance(**{**ROW, "instance_id": "o__p-2"}, gold_functions=("a.py:f",)),
    )
    assert load_dataset(lines) == expected
    assert load_dataset(array) == expected


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"\ufeff\n{json.dumps(ROW)}\n\n")
    assert [row.instance_id for row in load_dataset(path)] == ["o__p-1"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "not valid JSON"),
        ("[1]", "a.jsonl:2"),
        ("3", "a.jsonl:2: not a JSON object"),
        (json.dumps({**ROW, "instance_id": "x", "repo": "../p"}), "repo"),
        (json.dumps({**ROW, "instance_id": "x", "repo": "o/.."}), "repo"),
        (json.dumps({**ROW, "instance_id": "x", "base_commit": "--upload-pack=x"}), "base_commit"),
        (json.dumps({**ROW, "instance_id": 3}), "instance_id"),
        (json.dumps({**ROW, "instance_id": "x", "gold_functions": ["f"]}), "gold_functions.0"),
        (json.dumps({**ROW, "instance_id": "x", "patch": "@@ -1 +1 @@\n-a\n+b"}), "patch"),
        (json.dumps(ROW), "again, first at"),
        (json.dumps({"instance_id": "x", "repo": "o/p", "base_commit": "0" * 40}), "problem_stat"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, bad: str, says: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n{bad}\n")
    with pytest.raises(ConfigurationError) as caught:
        load_dataset(path)
    assert f"{path}:2" in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_row_of_an_array_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([ROW, {}]))
    with pytest.raises(ConfigurationError, match=r"a\.json: row 2: instance_id"):
        load_dataset(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe{}"])
def test_a_file_without_rows(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError):
        load_dataset(path)
    with pytest.raises(ConfigurationError, match="no such file"):
        load_dataset(tmp_path / "none")


def test_the_split_is_by_project_and_never_changes() -> None:
    # Pinned: what was tuned on must not become held out with a later version.
    tuning = {"ansible/ansible", "fastapi/fastapi", "pandas-dev/pandas", "localstack/localstack"}
    held_out = {"scrapy/scrapy", "keras-team/keras", "Textualize/rich", "nvbn/thefuck"}
    assert {repo for repo in tuning | held_out if is_for_tuning(repo)} == tuning


def test_forks_are_on_the_same_side_and_case_is_no_difference() -> None:
    assert is_for_tuning("yt-dlp/yt-dlp") == is_for_tuning("ytdl-org/youtube-dl")
    assert is_for_tuning("Scrapy/Scrapy") == is_for_tuning("scrapy/scrapy")


def test_the_two_sides_are_about_60_to_40_and_together_all() -> None:
    rows = tuple(
        GoldInstance(**{**ROW, "instance_id": str(n), "repo": f"owner/project{n // 2}"})
        for n in range(2000)
    )
    tune, held_out = part_of(rows, "tune"), part_of(rows, "held-out")
    assert part_of(rows, "all") == rows
    assert sorted((*tune, *held_out), key=lambda row: int(row.instance_id)) == list(rows)
    assert {row.repo for row in tune}.isdisjoint(row.repo for row in held_out)
    assert 1120 < len(tune) < 1280
