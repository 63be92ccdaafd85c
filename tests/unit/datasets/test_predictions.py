"""Predictions in all forms, and what is wrong with an entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.predictions import Prediction, read_predictions
from agent.datasets.rows import InputProblem
from agent.errors import ConfigurationError

FIRST = {"instance_id": "o__a-1", "model_name_or_path": "m", "model_patch": "diff 1"}
SECOND = {"instance_id": "o__a-2", "model_name_or_path": "m", "model_patch": None}


def written(folder: Path, content: str, name: str = "preds.json") -> Path:
    path = folder / name
    path.write_text(content, "utf-8")
    return path


def as_text(form: str, entries: list[dict[str, Any]]) -> str:
    if form == "dict":
        return json.dumps({entry["instance_id"]: entry for entry in entries}, indent=1)
    if form == "list":
        return json.dumps(entries)
    return "".join(json.dumps(entry) + "\n\n" for entry in entries)


@pytest.mark.parametrize("form", ["dict", "list", "jsonl"])
@pytest.mark.parametrize("name", ["preds.json", "all_preds.jsonl", "\ufeffx"])
def test_all_forms_say_the_same(tmp_path: Path, form: str, name: str) -> None:
    found = read_predictions(written(tmp_path, as_text(form, [FIRST, SECOND]), name))

    assert found.problems == ()
    assert list(found.by_id.values()) == [
        Prediction.model_validate(FIRST),
        Prediction.model_validate(SECOND),
    ]


def test_one_line_is_an_entry_and_no_dictionary(tmp_path: Path) -> None:
    found = read_predictions(written(tmp_path, json.dumps(FIRST)))

    assert list(found.by_id) == ["o__a-1"]


def test_a_dictionary_may_leave_the_id_to_its_keys(tmp_path: Path) -> None:
    entry = {"model_patch": "d", "other": 1}

    found = read_predictions(written(tmp_path, json.dumps({"o__a-1": entry})))

    assert found.by_id["o__a-1"] == Prediction(instance_id="o__a-1", model_patch="d")


def test_what_cannot_be_used_is_told_with_its_place(tmp_path: Path) -> None:
    lines = [
        json.dumps(FIRST),
        '{"instance_id": "o__a-3"}',
        '{"instance_id": "o__a-4", "model_patch": 7}',
        "{nonsense",
        "[]",
        json.dumps(FIRST),
        json.dumps({**FIRST, "model_patch": "other"}),
    ]

    found = read_predictions(path := written(tmp_path, "\n".join(lines), "p.jsonl"))

    assert list(found.by_id) == ["o__a-1"]
    assert [(p.kind, p.place.removeprefix(str(path)), p.instance_id) for p in found.problems] == [
        ("bad-prediction", ":2", ""),
        ("bad-prediction", ":3", ""),
        ("bad-prediction", ":4", ""),
        ("bad-prediction", ":5", ""),
        ("duplicate-prediction", ":6", "o__a-1"),
        ("duplicate-prediction", ":7", "o__a-1"),
    ]
    reasons = [problem.reason for problem in found.problems]
    assert reasons[0].startswith("model_patch: is missing (a diff as a text, or null")
    assert reasons[1] == "model_patch: a diff as a text, or null, is needed"
    assert reasons[3] == "not a JSON object"
    assert "not valid JSON" in reasons[2]
    assert reasons[4] == f"o__a-1: the same again, first at {path}:1; the first counts"
    assert "another patch" in reasons[5]


def test_a_key_that_is_not_the_id(tmp_path: Path) -> None:
    found = read_predictions(path := written(tmp_path, json.dumps({"o__a-9": FIRST})))

    reason = "instance_id: 'o__a-1' under the key 'o__a-9'"
    assert found.problems == (InputProblem("bad-prediction", f"{path}: o__a-9", reason, "o__a-9"),)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="neither JSON nor JSON lines"):
        read_predictions(written(tmp_path, "diff --git a/x b/x\n"))
    with pytest.raises(ConfigurationError, match="No such file"):
        read_predictions(tmp_path / "none.json")


@pytest.mark.parametrize(("patch", "expected"), [(None, ""), ("", ""), (" \n", ""), ("d\n", "d\n")])
def test_blank_text_is_no_patch(patch: str | None, expected: str) -> None:
    assert Prediction(instance_id="a", model_patch=patch).patch == expected
