from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cli.commands.eval_retrieval import (
    EvaluateRequest,
    retrieval,
    terminated_as_interrupted,
)
from agent.errors import ConfigurationError
from agent.settings import MIN_CONTEXT_TOKENS, load


def request(folder: Path) -> EvaluateRequest:
    return EvaluateRequest(
        dataset=folder / "d.jsonl",
        repos=folder,
        output=folder / "r.jsonl",
        presets=("lexical",),
        budgets="",
        split="all",
        limit=None,
        workers=1,
        restart=False,
        json=False,
        quiet=True,
    )


@pytest.mark.parametrize("budgets", ["x", "3000,", "3000;6000", "-1", "0", "1.5"])
def test_budgets_that_are_no_numbers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], budgets: str
) -> None:
    assert retrieval(replace(request(tmp_path), budgets=budgets), {}) == 2
    assert f"--budgets {budgets}: give token counts such as 3000,6000" in capsys.readouterr().err


def test_budgets_are_as_large_as_a_context_must_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load({"context_tokens": MIN_CONTEXT_TOKENS})
    with pytest.raises(ConfigurationError):
        load({"context_tokens": MIN_CONTEXT_TOKENS - 1})
    assert retrieval(replace(request(tmp_path), budgets="3000,199"), {}) == 2
    assert "--budgets 3000,199: 199 holds no code; the least is 200" in capsys.readouterr().err


def test_rows_have_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert retrieval(replace(request(tmp_path), output=Path("-")), {}) == 2
    assert "name a file to keep them in" in capsys.readouterr().err


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize(
    ("output", "dataset", "presets"),
    [
        ("r.jsonl", "r.jsonl", ("lexical",)),
        ("./x/../r.jsonl", "r.jsonl", ("lexical",)),
        ("r.jsonl", "r.jsonl", ("lexical", "original")),
        ("r.jsonl", "r.original.jsonl", ("lexical", "original")),
        ("r.jsonl", "r.jsonl.budgets.jsonl", ("lexical",)),
    ],
)
def test_the_data_set_is_never_the_output(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    output: str,
    dataset: str,
    presets: tuple[str, ...],
    restart: bool,
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / dataset).write_text("precious\n")
    asked = replace(
        request(tmp_path),
        dataset=tmp_path / dataset,
        output=tmp_path / output,
        presets=presets,
        restart=restart,
    )
    assert retrieval(asked, {}) == 2
    assert "--output is the --dataset" in capsys.readouterr().err
    assert (tmp_path / dataset).read_text() == "precious\n"


def test_a_termination_is_an_interruption() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
