"""Predictions in all forms, the fingerprint of a run, and the folder of an instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.batch import Fingerprint
from agent.datasets.predictions import PredictionsForm, PredictionsWriter, choose_form
from agent.errors import ConfigurationError
from agent.results import kept as files
from agent.settings import load
from tests.support.full_disk import full_at

IDS = ["b", "a", "\u00e9"]


def entry(name: str, patch: str) -> dict[str, str]:
    return {"instance_id": name, "model_name_or_path": "m", "model_patch": patch}


def read(path: Path, form: PredictionsForm) -> Any:
    text = path.read_text("utf-8")
    return [json.loads(t) for t in text.splitlines()] if form == "jsonl" else json.loads(text)


@pytest.mark.parametrize("form", ["dict", "list", "jsonl"])
def test_each_form_in_the_order_of_the_data_set(tmp_path: Path, form: PredictionsForm) -> None:
    path = tmp_path / "p"
    predictions = PredictionsWriter(path, form, "m", IDS)
    predictions.write()
    assert path.read_text() == {"dict": "{}\n", "list": "[]\n", "jsonl": ""}[form]
    for position in (2, 0, 1):
        predictions.put(IDS[position], f"diff\n\u2028{position}")
    predictions.write(now=True)
    entries = [entry(name, f"diff\n\u2028{n}") for n, name in enumerate(IDS)]
    found = read(path, form)
    assert found == ({e["instance_id"]: e for e in entries} if form == "dict" else entries)
    assert list(found) == (IDS if form == "dict" else entries)


@pytest.mark.parametrize(
    ("name", "chosen", "form"),
    [
        ("preds.json", None, "dict"),
        ("all_preds.jsonl", None, "jsonl"),
        ("preds.json", "list", "list"),
        ("all_preds.jsonl", "dict", "dict"),
    ],
)
def test_the_form_is_chosen_or_told_by_the_name(
    name: str, chosen: PredictionsForm | None, form: PredictionsForm
) -> None:
    assert choose_form(Path(name), chosen) == form


def test_a_full_disk_leaves_the_old_file_and_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "p"
    predictions = PredictionsWriter(path, "jsonl", "m", IDS)
    predictions.put("b", "first")
    predictions.write()
    predictions.put("a", "x" * 1000)
    with full_at(200):
        predictions.write(now=True)
    assert predictions.failure is not None
    assert read(path, "jsonl") == [entry("b", "first")]
    predictions.write(now=True)
    assert predictions.failure is None
    assert [e["instance_id"] for e in read(path, "jsonl")] == ["b", "a"]


def test_an_output_that_can_be_none_is_said_before(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no folder"):
        PredictionsWriter(tmp_path / "gone" / "p", "dict", "m", IDS)
    with pytest.raises(ConfigurationError, match="not a file"):
        PredictionsWriter(tmp_path, "dict", "m", IDS)


def make(dataset: str = "d", model: str = "m", **flags: Any) -> Fingerprint:
    made = Fingerprint.of(load(flags), Path(__file__), model)
    return made.model_copy(update={"dataset": dataset})


def test_the_same_goes_on_and_anything_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert make().check(path, force=False) == ()
    make().save(path)
    assert make().check(path, force=False) == ()
    other = make("d2", "m2", context_tokens=3000)
    with pytest.raises(ConfigurationError) as raised:
        other.check(path, force=False)
    for told in ("the data set has changed", "model m, now m2", 'context_tokens "auto", now 3000'):
        assert told in str(raised.value)
    assert make().check(path, force=False) == ()
    assert len(other.check(path, force=True)) == 3
    other.save(path)
    assert other.check(path, force=False) == ()


def test_keys_places_and_logs_are_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    make().save(path)
    monkeypatch.setenv("PATCHSHOT_API_KEY", "sk-secret")
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", "/elsewhere")
    assert make(log_file="x").check(path, force=True) == ()
    assert "secret" not in make().model_dump_json()


def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="not written by this command"):
        make().check(tmp_path / "run.json", force=True)


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert files.read_result(tmp_path) is None
    assert files.read_patch(tmp_path) == ""
    assert files.last_log_line(tmp_path) == ""
    (tmp_path / "result.json").write_text('{"status":')
    assert files.read_result(tmp_path) is None
