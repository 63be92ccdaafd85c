from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigurationError
from agent.evaluation.retrieval.result_files import RunNote
from agent.evaluation.retrieval.runner import (
    RetrievalEvaluation,
    RetrievalPlan,
    Skipped,
    evaluate,
    output_paths,
)
from agent.evaluation.retrieval.table import render
from agent.settings import load
from agent.types.events import Event, Notice, StageProgress
from tests.support.evaluation import bare_repository, dataset_row, write_dataset
from tests.support.ignored_events import ignore

pytestmark = pytest.mark.slow


def plan(folder: Path, *presets: str, **other: Any) -> RetrievalPlan:
    return RetrievalPlan(
        dataset=folder / "d.jsonl",
        repositories=folder,
        output=folder / "r.jsonl",
        settings={name: load({"preset": name}) for name in presets or ("lexical",)},
        flags={},
        workers=1,
        **other,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two instances that can be measured, one without answer, two that cannot be."""
    commit = bare_repository(tmp_path)
    rows = [
        dataset_row(commit, 1),
        dataset_row(commit, 2, repo="owner/gone"),
        dataset_row(commit, 3, patch=None, gold_functions=["shop/basket.py:none"]),
        dataset_row("1" * 40, 4),
        dataset_row(commit, 5, gold_functions=["shop/basket.py:Basket", "README.md:none"]),
    ]
    write_dataset(tmp_path / "d.jsonl", rows)
    return tmp_path


def ids(path: Path) -> list[str]:
    return [json.loads(line)["instance_id"] for line in path.read_text().splitlines()]


def test_everything_is_accounted_for(folder: Path) -> None:
    events: list[Event] = []
    found = evaluate(plan(folder, "lexical", "original"), events.append)
    assert isinstance(found, RetrievalEvaluation)
    assert (found.instances, found.scored, found.unscored, found.absent) == (5, 2, 1, 2)
    assert found.skipped == (
        Skipped("owner__shop-2", "no repository of owner/gone"),
        Skipped(
            "owner__shop-4",
            f"{folder}/owner__shop.git: no commit {'1' * 40!r} here; check the name, "
            "or fetch it first",
        ),
    )
    assert [report.preset for report in found.reports] == ["lexical", "original"]
    assert [report.overall.instances for report in found.reports] == [2, 2]
    assert found.reports[0].overall.metrics["file @1"].mean == 1.0
    for preset in ("lexical", "original"):
        kept = ids(folder / f"r.{preset}.jsonl")
        assert kept == ["owner__shop-1", "owner__shop-3", "owner__shop-5"]
    progress = [event for event in events if isinstance(event, StageProgress)]
    assert progress == [StageProgress("evaluate", n, 4) for n in range(1, 5)]


@pytest.mark.slow
def test_rows_that_are_there_are_kept_and_give_the_same_figures(folder: Path) -> None:
    first = evaluate(plan(folder), ignore)
    output = folder / "r.jsonl"
    lines = output.read_text().splitlines(keepends=True)
    changed = lines[0].replace('"seconds":', '"seconds":1234')
    output.write_text(changed + lines[2] + lines[1][:40])  # the last one torn
    second = evaluate(plan(folder), ignore)
    assert ids(output) == ["owner__shop-1", "owner__shop-3", "owner__shop-5"]
    assert output.read_text().startswith(changed)
    assert second.reports[0].overall == first.reports[0].overall
    evaluate(plan(folder, restart=True), ignore)
    assert "1234" not in output.read_text()


@pytest.mark.slow
def test_context_recall_at_further_budgets(folder: Path) -> None:
    budgets = (200, 6000)
    first = evaluate(plan(folder, budgets=budgets), ignore)
    metrics = first.reports[0].overall.metrics
    recalls = ("context recall", "edit recall")
    assert list(metrics)[-6:] == [
        *recalls, *(f"{name}, {budget}" for name in recalls for budget in ("200", "6,000"))
    ]  # fmt: skip
    assert metrics["context recall, 6,000"] == metrics["context recall"]
    assert "| context recall, 6,000 " in render(first)
    beside = folder / "r.jsonl.budgets.jsonl"
    assert ids(beside) == ids(folder / "r.jsonl")
    assert "budgets" not in (folder / "r.jsonl").read_text()

    beside.write_text(beside.read_text().splitlines(keepends=True)[0])
    assert evaluate(plan(folder, budgets=budgets), ignore).reports[0].overall.metrics == metrics
    assert ids(beside) == ids(folder / "r.jsonl")
    with pytest.raises(ConfigurationError, match=r"budgets \[200, 6000\], now \[\]"):
        evaluate(plan(folder), ignore)


@pytest.mark.slow
def test_limit_and_split_choose_instances(folder: Path) -> None:
    limited = evaluate(plan(folder, limit=1), ignore)
    assert (limited.instances, limited.scored) == (1, 1)
    # By the hash of their names, owner/shop is held out and owner/gone is for tuning.
    held_out = evaluate(plan(folder, split="held-out", restart=True), ignore)
    assert (held_out.split, held_out.instances) == ("held-out", 4)
    tune = evaluate(plan(folder, split="tune", restart=True), ignore)
    assert tune.skipped == (Skipped("owner__shop-2", "no repository of owner/gone"),)
    assert tune.instances == 1


def test_a_split_without_instances(folder: Path) -> None:
    commit = "1" * 40
    write_dataset(folder / "d.jsonl", [dataset_row(commit)])
    with pytest.raises(ConfigurationError, match="no instance in the split 'tune'"):
        evaluate(plan(folder, split="tune"), ignore)


def test_one_preset_writes_the_file_named_and_several_one_each(tmp_path: Path) -> None:
    one = plan(tmp_path, "original")
    several = plan(tmp_path, "lexical", "original")
    assert output_paths(one) == {"original": tmp_path / "r.jsonl"}
    assert output_paths(several) == {
        "lexical": tmp_path / "r.lexical.jsonl",
        "original": tmp_path / "r.original.jsonl",
    }


def test_the_tables(folder: Path) -> None:
    text = render(evaluate(plan(folder, "lexical", "original"), ignore))
    lines = text.splitlines()
    assert lines[0] == (
        "Split all: 2 instances of 1 projects scored, 1 change no existing function outside "
        "tests, 2 skipped; 2 named functions not there."
    )
    assert any(line.startswith("| file @1 ") and "| 100.0 (100–100) |" in line for line in lines)
    assert "| owner/shop                   |   2 | 100.0 / " in text
    assert lines[-3] == "Skipped (2):"
    assert lines[-1] == "- 1 × no repository of owner/gone (first: owner__shop-2)"
    tables = [line for line in lines if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)


def test_a_table_without_anything_scored(folder: Path) -> None:
    write_dataset(folder / "d.jsonl", [dataset_row("1" * 40)])
    text = render(evaluate(plan(folder), ignore))
    assert text.startswith("Split all: 0 instances of 0 projects scored")
    assert "|" not in text


def embedding(folder: Path, *presets: str, **other: Any) -> RetrievalPlan:
    """A plan with an embedding server that nobody answers at."""
    flags = {
        "embed": "remote",
        "embed_model": "m",
        "embed_base_url": "http://127.0.0.1:9/v1",
        "cache_dir": folder / "cache",
    }
    settings = {name: load({**flags, "preset": name}) for name in presets}
    flags["cache_dir"] = str(folder / "cache")
    return replace(plan(folder, **other), settings=settings, flags=flags)


def test_an_instance_ranked_without_its_embeddings_has_no_row(folder: Path) -> None:
    write_dataset(folder / "d.jsonl", [dataset_row(commit_of(folder))])
    found = evaluate(embedding(folder, "lexical", "default", limit=1), ignore)
    (skipped,) = found.skipped
    assert skipped.reason.startswith("preset default: no embeddings, ranked by words alone: ")
    assert found.scored == 0
    assert ids(folder / "r.default.jsonl") == []
    assert ids(folder / "r.lexical.jsonl") == ["owner__shop-1"]
    assert found.embedders == {"default": "m at http://127.0.0.1:9/v1 (openai)"}
    assert "\nEmbedded: default by m at http://127.0.0.1:9/v1 (openai).\n" in render(found)


def commit_of(folder: Path) -> str:
    row = json.loads((folder / "d.jsonl").read_text().splitlines()[0])
    return str(row["base_commit"])


def test_a_preset_without_embeddings_says_that_it_has_no_use_for_them(folder: Path) -> None:
    events: list[Event] = []
    evaluate(embedding(folder, "lexical", limit=1), events.append)
    said = "--preset lexical ranks by words alone: --embed remote changes nothing"
    assert Notice(said, "warning") in events


@pytest.mark.slow
def test_rows_of_other_issues_with_the_same_ids_are_refused(folder: Path) -> None:
    evaluate(plan(folder), ignore)
    rows = [json.loads(line) for line in (folder / "d.jsonl").read_text().splitlines()]
    rows[0]["patch"] += " \n"  # the answer is worked out anew in any case
    write_dataset(folder / "d.jsonl", rows)
    evaluate(plan(folder), ignore)
    rows[2]["problem_statement"] += " indeed"
    write_dataset(folder / "d.jsonl", rows)
    with pytest.raises(ConfigurationError, match=r"these ids differ: owner__shop-3; --restart"):
        evaluate(plan(folder), ignore)
    assert evaluate(plan(folder, restart=True), ignore).scored == 2


@pytest.mark.slow
def test_a_restart_that_cannot_begin_loses_nothing(folder: Path) -> None:
    evaluate(plan(folder), ignore)
    files = [folder / f"r.jsonl{end}" for end in ("", ".budgets.jsonl", ".run.json")]
    before = [file.read_bytes() for file in files]
    broken = replace(plan(folder, restart=True), flags={"embed": "remote"})
    with pytest.raises(ConfigurationError, match="--embed remote needs a model"):
        evaluate(broken, ignore)
    assert [file.read_bytes() for file in files] == before


def test_a_second_run_on_the_same_output_is_refused(folder: Path) -> None:
    with RunNote(folder / "r.jsonl"), pytest.raises(ConfigurationError, match="another run writes"):
        evaluate(plan(folder, restart=True), ignore)


@pytest.mark.slow
def test_rows_without_an_answer_are_skipped_as_such(folder: Path) -> None:
    commit = commit_of(folder)
    rows = [
        dataset_row(commit, 1, patch=None),
        dataset_row(commit, 2, patch="see the other issue"),
        dataset_row(commit, 3, patch=None, gold_files=["shop/basket.py"]),
    ]
    write_dataset(folder / "d.jsonl", rows)
    found = evaluate(plan(folder), ignore)
    assert (found.scored, found.unscored) == (1, 0)
    assert "- 2 × the row names no answer: neither a patch nor " in render(found)


def test_reasons_are_counted_together_whatever_the_id(folder: Path) -> None:
    commit = commit_of(folder)
    rows = [dataset_row(commit, n, problem_statement=" ") for n in (1, 2)]
    write_dataset(folder / "d.jsonl", rows)
    assert "- 2 × the problem is empty" in render(evaluate(plan(folder), ignore))


def test_ids_cannot_write_to_the_terminal(folder: Path) -> None:
    row = dataset_row(commit_of(folder), repo="owner/gone", instance_id="a\x1b[2J\nb")
    write_dataset(folder / "d.jsonl", [row])
    text = render(evaluate(plan(folder), ignore))
    assert "(first: a\ufffd[2J\ufffdb)" in text
    assert "\x1b" not in text
