"""Whole evaluations: files, resumption, refusals and tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigurationError
from agent.evaluation.retrieval import RetrievalPlan, evaluate, render
from agent.settings import load
from agent.types.events import Event, StageProgress
from tests.support.evaluation import bare_repository, dataset_row, write_dataset
from tests.support.ignored_events import ignore

pytestmark = pytest.mark.slow


def plan(folder: Path, **other: Any) -> RetrievalPlan:
    flags = {"preset": "lexical"}
    return RetrievalPlan(
        dataset=folder / "d.jsonl",
        repositories=folder,
        output=folder / "r.jsonl",
        settings=load(flags),
        flags=flags,
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


def commit_of(folder: Path) -> str:
    row = json.loads((folder / "d.jsonl").read_text().splitlines()[0])
    return str(row["base_commit"])


def ids(path: Path) -> list[str]:
    return [json.loads(line)["instance_id"] for line in path.read_text().splitlines()]


def test_everything_is_accounted_for(folder: Path) -> None:
    events: list[Event] = []
    done = evaluate(plan(folder, budgets=(200, 6000)), events.append)
    assert (done.instances, done.scored, done.unscored) == (5, 2, 1)
    assert done.skipped == {
        "owner__shop-2": "no repository of owner/gone",
        "owner__shop-4": f"{folder}/owner__shop.git: no commit {'1' * 40!r} here; check the name, "
        "or fetch it first",
    }
    assert done.report is not None
    assert done.report.metrics["file @1"].mean == 1.0
    assert done.report.metrics["context recall, 6,000"] == done.report.metrics["context recall"]
    measured = ["owner__shop-1", "owner__shop-3", "owner__shop-5"]
    assert ids(folder / "r.jsonl") == measured
    assert {path.name for path in folder.iterdir()} == {"d.jsonl", "owner__shop.git", "r.jsonl"}
    progress = [event for event in events if isinstance(event, StageProgress)]
    assert progress == [StageProgress("evaluate", n, 4) for n in range(1, 5)]
    row = json.loads((folder / "r.jsonl").read_text().splitlines()[0])
    fields = ("instance_id", "files", "functions", "context", "context_tokens", "seconds")
    assert tuple(row)[: len(fields)] == fields
    lines = render(done).splitlines()
    assert lines[0] == (
        "Split all: 2 instances scored, 1 change no existing function outside tests, 2 skipped."
    )
    assert any(line.startswith("| file @1 ") and "100.0 (100–100) |" in line for line in lines)
    assert any(line.startswith("| context recall, 6,000 ") for line in lines)
    assert lines[-3:-1] == [
        "Skipped (2):",
        f"- 1 × {done.skipped['owner__shop-4']} (first: owner__shop-4)",
    ]
    assert lines[-1] == "- 1 × no repository of owner/gone (first: owner__shop-2)"


def test_limit_and_split_choose_instances(folder: Path) -> None:
    limited = evaluate(plan(folder, limit=1), ignore)
    assert (limited.instances, limited.scored) == (1, 1)
    # By the hash of their names, owner/shop is held out and owner/gone is for tuning.
    held_out = evaluate(plan(folder, split="held-out"), ignore)
    assert (held_out.split, held_out.instances) == ("held-out", 4)
    tune = evaluate(plan(folder, split="tune"), ignore)
    assert tune.skipped == {"owner__shop-2": "no repository of owner/gone"}
    write_dataset(folder / "d.jsonl", [dataset_row("1" * 40)])
    with pytest.raises(ConfigurationError, match="no instance in the split 'tune'"):
        evaluate(plan(folder, split="tune"), ignore)


def test_ids_cannot_write_to_the_terminal(folder: Path) -> None:
    row = dataset_row(commit_of(folder), repo="owner/gone", instance_id="a\x1b[2J\nb")
    write_dataset(folder / "d.jsonl", [row])
    text = render(evaluate(plan(folder), ignore))
    assert "(first: a\ufffd[2J\ufffdb)" in text
    assert "\x1b" not in text


def test_bad_settings_write_nothing(folder: Path) -> None:
    flags = {"embed": "remote"}
    broken = replace(plan(folder), settings=load(flags), flags=flags)
    with pytest.raises(ConfigurationError, match="--embed remote needs a model"):
        evaluate(broken, ignore)
    assert not (folder / "r.jsonl").exists()


def test_an_instance_ranked_without_its_embeddings_has_no_row(folder: Path) -> None:
    flags = {
        "preset": "default",
        "embed": "remote",
        "embed_model": "m",
        "embed_base_url": "http://me:pass@127.0.0.1:9/v1",
        "cache_dir": str(folder / "cache"),
    }
    write_dataset(folder / "d.jsonl", [dataset_row(commit_of(folder))])
    settings = load({**flags, "cache_dir": folder / "cache"})
    done = evaluate(replace(plan(folder), settings=settings, flags=flags), ignore)
    assert done.skipped["owner__shop-1"].startswith("no embeddings, ranked by words alone: ")
    assert done.scored == 0


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"patch": None}, {"patch": "see the other issue"}], "the row names no answer: neither"),
        ([{"problem_statement": " "}, {"problem_statement": "\n"}], "the problem is empty"),
    ],
)
def test_equal_reasons_are_counted_together(
    folder: Path, rows: list[dict[str, Any]], reason: str
) -> None:
    commit = commit_of(folder)
    write_dataset(folder / "d.jsonl", [dataset_row(commit, n, **r) for n, r in enumerate(rows)])
    assert f"- 2 × {reason}" in render(evaluate(plan(folder), ignore))
