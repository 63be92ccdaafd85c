from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigurationError
from agent.report.evaluations import Evaluated, load_evaluation


def load(tmp_path: Path, value: Any) -> dict[str, Evaluated]:
    path = tmp_path / "evaluation.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return dict(load_evaluation(path))


STATUS = {"FAIL_TO_PASS": {"success": ["t1"], "failure": []}, "PASS_TO_PASS": None, "OTHER": 1}


def test_the_shape_by_instance(tmp_path: Path) -> None:
    found = load(tmp_path, {"a": {"resolved": True, "tests_status": STATUS, "new": 1}, "n": 3})
    assert list(found) == ["a"]
    assert found["a"].resolved is True
    assert found["a"].tests_status.fail_to_pass.success == ("t1",)
    assert found["a"].tests_status.pass_to_pass.success == ()


def test_the_report_of_a_run_with_what_is_ours_beside(tmp_path: Path) -> None:
    entry = {
        "resolved": False, "outcome": "error", "reason": "no environment", "tests_status": None,
        "absent": ["t9"], "own": {"same_patch": False},
    }  # fmt: skip
    found = load(tmp_path, {"resolved_ids": ["x"], "instances": {"a": entry}})
    assert list(found) == ["a"]
    assert found["a"].resolved is None
    assert found["a"].remarks == (
        "no environment",
        "the evaluated patch is another one than that of this run",
        "1 given tests were not known to the run",
    )


@pytest.mark.parametrize("value", ["{", "[]", "3", '{"resolved_ids": []}', "\x00", "[" * 100_000])
def test_what_says_nothing_is_refused_by_name(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--evaluation .*evaluation\.json"):
        load(tmp_path, value)
