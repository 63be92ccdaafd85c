"""Stage times from a journal and from kept results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.batch.journal import Journal, Settled, StageEntry
from agent.errors import ConfigurationError
from benchmarks.scale.checking import Compared, compare
from benchmarks.scale.inputs import Stages, from_results, from_run


def write_run(folder: Path) -> None:
    journal = Journal(folder / "journal.jsonl")

    def stage(name: str, stage: str, seconds: float) -> None:
        entry = StageEntry(id=name, attempt=1, stage=stage, seconds=seconds, summary="")
        journal.append(entry)

    def paid(name: str, given: int, written: int) -> None:
        settled = Settled(
            id=name, sha256="0" * 64, how="paid", cost_usd=None, input_tokens=given,
            output_tokens=written,
        )  # fmt: skip
        journal.append(settled)

    for name, seconds in (("a", 1.0), ("b", 3.0)):
        stage(name, "retrieve", seconds)
        stage(name, "pack", 0.5)
        paid(name, 6_000, 1_000)
        stage(name, "validate", 2 * seconds)
    paid("b", 12_000, 1_000)
    paid("b", 12_000, 1_000)
    journal.close()


def test_a_journal_gives_times_tokens_and_how_often_calls_are_made_again(tmp_path: Path) -> None:
    write_run(tmp_path)

    found = from_run(tmp_path, Stages())

    assert found.retrieve == (1.5, 3.5)
    assert found.validate == (4.0, 12.0)  # two runs at once, each on a core
    assert (found.input_tokens, found.output_tokens) == (9_000, 1_000)
    assert (found.repair_share, found.iterative_share, found.iterative_steps) == (0.5, 1.0, 1)


@pytest.mark.parametrize("content", [None, ""])
def test_a_folder_without_a_paid_reply_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "journal.jsonl").write_text(content)

    with pytest.raises(ConfigurationError):
        from_run(tmp_path, Stages())


def test_kept_results_are_read(tmp_path: Path) -> None:
    assert from_results().cold[0] > 1.0
    with pytest.raises(ConfigurationError, match="make bench"):
        from_results(tmp_path)


def test_a_measured_run_is_simulated_from_its_processor_time_alone(tmp_path: Path) -> None:
    runs = [
        {"workers": workers, "seconds": seconds, "cpu": 40.0, "others_cores": 0.0, "verified": 10}
        for workers, seconds in ((2, 30.0), (1, 55.0))
    ]
    result = {"instances": 10, "projects": 2, "latency s": 2.0, "runs": runs}
    (tmp_path / "2026-01-01-batch.json").write_text(json.dumps(result))
    stages = Stages(start=(1.0,), retrieve=(1.0,), validate=(2.0,), journal=0.0, report=0.0)

    found = list(compare(8, stages, tmp_path))

    # 4 s of processor an instance: 2 before the call, 2 s of call, 2 / 2 in two runs after it.
    assert found == [Compared(1, 55.0, 50.0), Compared(2, 30.0, 25.0)]
