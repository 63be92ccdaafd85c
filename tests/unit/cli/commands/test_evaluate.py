from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.agent_process import call_agent


def evaluate(folder: Path, **other: object) -> int:
    given = {"dataset": folder / "d.jsonl", "repos": folder, "output": folder / "r.jsonl"}
    (folder / "d.jsonl").touch()
    return call_agent("eval", "retrieval", "--quiet", **{**given, "preset": "lexical", **other})


@pytest.mark.parametrize("budgets", ["x", "3000,", "3000;6000", "-1", "0", "1.5", "3000,199"])
def test_budgets_that_are_no_budgets_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], budgets: str
) -> None:
    assert evaluate(tmp_path, budgets=budgets) == 2
    assert f"--budgets {budgets}: give token counts such as 3000,6000" in capsys.readouterr().err


def test_rows_have_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert evaluate(tmp_path, output="-") == 2
    assert "name a file for the rows" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["r.jsonl", "./x/../r.jsonl"])
def test_the_data_set_is_never_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "r.jsonl").write_text("precious\n")
    assert evaluate(tmp_path, dataset=tmp_path / "r.jsonl", output=tmp_path / output) == 2
    assert "--output is the --dataset" in capsys.readouterr().err
    assert (tmp_path / "r.jsonl").read_text() == "precious\n"
