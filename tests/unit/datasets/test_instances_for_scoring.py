"""Rows for scoring: what they hold, and what is wrong with line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent.datasets.instances import ScoringInstance, read_instances
from agent.datasets.rows import InputProblem


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


def test_rows_have_what_scoring_needs(tmp_path: Path) -> None:
    path = written(tmp_path, row(1), "", row(2, version="5.2", patch="g"), row(3))

    rows = list(read_instances(path, ScoringInstance))

    assert [one.instance_id for one in rows] == ["o__a-1", "o__a-2", "o__a-3"]
    assert rows[1] == ScoringInstance(
        instance_id="o__a-2",
        repo="o/a",
        base_commit="0" * 40,
        test_patch="t",
        patch="g",
        version="5.2",
        FAIL_TO_PASS=("tests/test_a.py::test_x",),
        PASS_TO_PASS=(),
    )


def test_what_cannot_be_used_is_told_with_line_and_field(tmp_path: Path) -> None:
    without_commit = {name: value for name, value in row(8).items() if name != "base_commit"}
    path = written(
        tmp_path,
        row(1, base_commit="main"),
        "{nonsense",
        {"instance_id": "x"},
        row(1),
        row(6, PASS_TO_PASS="not a list"),
        "7",
        {**without_commit, "base_comit": "0" * 40},
    )

    problems = [p for p in read_instances(path, ScoringInstance) if isinstance(p, InputProblem)]

    assert [(p.kind, p.place) for p in problems] == [
        ("duplicate-row" if number == 4 else "bad-row", f"{path}:{number}")
        for number in range(1, 8)
    ]
    texts = [problem.reason for problem in problems]
    assert texts[0] == "base_commit: a commit as 7 to 40 hex digits in lower case is needed"
    assert texts[1].startswith("not valid JSON")
    assert texts[2] == 'repo: is missing (a text such as "owner/name")'
    assert texts[3] == f"o__a-1 again, first at {path}:1; the first counts"
    assert texts[4].startswith("PASS_TO_PASS: a list of test ids such as")
    assert texts[5] == "not a JSON object"
    assert texts[6].startswith("base_commit: is missing (a commit as")
    assert texts[6].endswith("did you mean 'base_comit'?")
