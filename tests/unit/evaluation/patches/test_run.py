"""A whole evaluation: what is refused before anything is written, and what is told at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.datasets import make_selection
from agent.errors import ConfigurationError
from agent.evaluation.patches import Means, RunReport, Sandboxes, ScoringPlan, evaluate
from agent.types.events import Event, StageFinished
from agent.verify import ValidationOptions

ROW = {"repo": "o/a", "base_commit": "0" * 40, "FAIL_TO_PASS": ["tests/test_a.py::test_x"]}


def no_sandbox(_image: str | None) -> Any:
    raise AssertionError("there is nothing to run")


class Place:
    """Three rows, for two of them a prediction without a patch: nothing has to be run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.told: list[Event] = []
        (root / "repos").mkdir()
        names = ("first", "second", "third")
        rows = [json.dumps({"instance_id": name, **ROW}) for name in names]
        (root / "set.jsonl").write_text("\n".join(rows))
        entries = {name: {"model_patch": ""} for name in names[:2]}
        (root / "preds.json").write_text(json.dumps(entries))

    def evaluate(self, *ids: str, make: Callable[..., Means] | None = None) -> RunReport:
        plan = ScoringPlan(
            self.root / "preds.json",
            self.root / "set.jsonl",
            self.root / "repos",
            self.root / "evaluation.json",
            self.root / "evaluation.eval",
            selection=make_selection(ids, None, None),
        )
        means = Means(Sandboxes(no_sandbox), ValidationOptions())
        return evaluate(plan, make or (lambda _note, _stop: means), self.told.append)

    def written(self) -> list[str]:
        return sorted(path.name for path in self.root.glob("evaluation*"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_counter_ends_where_all_are_judged(place: Place) -> None:
    report = place.evaluate()

    last = place.told[-1]
    assert isinstance(last, StageFinished)
    assert last.summary == "2 of 2 judged, 0 resolved"
    assert report.empty_patch_ids == ("first", "second")
    assert place.written() == ["evaluation.eval", "evaluation.json"]


def test_an_id_without_a_prediction_is_no_mistake(place: Place) -> None:
    assert place.evaluate("third").incomplete_ids == ("third",)


def test_what_is_refused_leaves_nothing_behind(place: Place) -> None:
    def make(_note: object, _stop: object) -> Means:
        raise ConfigurationError("no such spec")

    with pytest.raises(ConfigurationError, match="no such spec"):
        place.evaluate(make=make)
    (place.root / "preds.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="no usable entry"):
        place.evaluate()

    assert place.written() == []
