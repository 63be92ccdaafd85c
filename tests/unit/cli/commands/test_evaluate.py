from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.agent_process import call_agent


def evaluate(folder: Path, **other: object) -> int:
    given = {"dataset": folder / "d.jsonl", "repos": folder, "output": folder / "r.jsonl"}
    (folder / "d.jsonl").touch()
    return call_agent("eval", "retrieval", "--quiet", **{**given, "preset": "lexical", **other})


@pytest.mark.parametrize("output", ["r.jsonl", "./x/../r.jsonl"])
def test_the_data_set_is_never_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "r.jsonl").write_text("precious\n")
    assert evaluate(tmp_path, dataset=tmp_path / "r.jsonl", output=tmp_path / output) == 2
    assert "--output is the --dataset" in capsys.readouterr().err
    assert (tmp_path / "r.jsonl").read_text() == "precious\n"
