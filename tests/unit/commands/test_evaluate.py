from __future__ import annotations

from pathlib import Path

import pytest

from agent.commands.evaluate import EvaluateRequest, retrieval


@pytest.mark.parametrize("budgets", ["x", "3000,", "3000;6000", "-1", "0", "1.5"])
def test_budgets_that_are_no_numbers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], budgets: str
) -> None:
    request = EvaluateRequest(
        dataset=tmp_path / "d.jsonl",
        repos=tmp_path,
        output=tmp_path / "r.jsonl",
        presets=("lexical",),
        budgets=budgets,
        split="all",
        limit=None,
        workers=1,
        restart=False,
        json=False,
        quiet=True,
    )
    assert retrieval(request, {}) == 2
    assert f"--budgets {budgets}: give token counts such as 3000,6000" in capsys.readouterr().err
