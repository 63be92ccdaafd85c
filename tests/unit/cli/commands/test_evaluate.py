from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agent.cli.commands.evaluation import terminated_as_interrupted
from agent.errors import ConfigurationError
from agent.settings import MIN_CONTEXT_TOKENS, load
from tests.support.agent_process import call_agent


def evaluate(folder: Path, **other: object) -> int:
    given = {"dataset": folder / "d.jsonl", "repos": folder, "output": folder / "r.jsonl"}
    (folder / "d.jsonl").touch()
    return call_agent("eval", "retrieval", "--quiet", **{**given, "preset": "lexical", **other})


@pytest.mark.parametrize("budgets", ["x", "3000,", "3000;6000", "-1", "0", "1.5"])
def test_budgets_that_are_no_numbers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], budgets: str
) -> None:
    assert evaluate(tmp_path, budgets=budgets) == 2
    assert f"--budgets {budgets}: give token counts such as 3000,6000" in capsys.readouterr().err


def test_budgets_are_as_large_as_a_context_must_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load({"context_tokens": MIN_CONTEXT_TOKENS})
    with pytest.raises(ConfigurationError):
        load({"context_tokens": MIN_CONTEXT_TOKENS - 1})
    assert evaluate(tmp_path, budgets="3000,199") == 2
    assert "--budgets 3000,199: 199 holds no code; the least is 200" in capsys.readouterr().err


def test_rows_have_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert evaluate(tmp_path, output="-") == 2
    assert "name a file to keep them in" in capsys.readouterr().err


@pytest.mark.parametrize("options", [("--restart",), ()])
@pytest.mark.parametrize(
    ("output", "dataset"),
    [("r.jsonl", "r.jsonl"), ("./x/../r.jsonl", "r.jsonl")],
)
def test_the_data_set_is_never_the_output(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    output: str,
    dataset: str,
    options: tuple[str, ...],
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / dataset).write_text("precious\n")
    given = {"dataset": tmp_path / dataset, "output": tmp_path / output, "repos": tmp_path}
    assert call_agent("eval", "retrieval", *options, **given) == 2
    assert "--output is the --dataset" in capsys.readouterr().err
    assert (tmp_path / dataset).read_text() == "precious\n"


def test_a_termination_is_an_interruption() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
