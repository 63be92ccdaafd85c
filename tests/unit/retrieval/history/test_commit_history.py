from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.repository.snapshot import take_snapshot
from agent.retrieval.history import (
    CommitHistory,
    HunkHistory,
)
from agent.retrieval.history.table import encode_table
from agent.retrieval.index.index import Index, all_files
from agent.retrieval.index.words import Terms
from agent.retrieval.ranking.evidence import Evidence
from agent.retrieval.ranking.history_evidence import history_evidence
from agent.retrieval.ranking.lexical import make_query
from agent.shared.workers import Cancelled
from agent.types import Problem
from agent.types.events import Event, Notice, StageProgress
from agent.types.protocols import Snapshot
from tests.conftest import run_git
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore

Make = Callable[[Mapping[str, str | bytes]], Path]

CODE = "def f():\n    return {}\n"


@pytest.fixture
def root(make_repository: Make) -> Path:
    root = make_repository({"a.py": CODE.format(0), "b.py": "b = 0\n"})
    for number in range(1, 4):
        change(root, number)
    return root


def change(root: Path, number: int) -> None:
    (root / "a.py").write_text(CODE.format(number))
    run_git(root, "commit", "-q", "-a", "-m", f"change {number}")


def test_the_evidence_of_a_real_repository(root: Path, cache: Path, said: list[Event]) -> None:
    snapshot = take_snapshot(root)
    corpus = Index(ignore).load(snapshot, all_files(snapshot), np.empty(0, dtype=np.uint64))
    problem = Problem("Change it", "")
    history = CommitHistory(cache, said.append)

    def found() -> Evidence:
        table = history.table(snapshot)
        return history_evidence(table, make_query(problem, Terms()), corpus)

    evidence = found()
    reasons = {corpus.files[n].path: sorted(r) for n, r in evidence.files.items()}
    assert reasons["a.py"] == ["churn", "history"]
    assert [corpus.pieces[n].symbol for n in evidence.pieces] == ["f"]
    assert said == [StageProgress("history", 4, 4)]
    assert found() == evidence


KINDS = pytest.mark.parametrize(
    ("history", "load"),
    [
        (CommitHistory, lambda one, snapshot: encode_table(one.table(snapshot))),
        (HunkHistory, lambda one, snapshot: one.commits(snapshot)),
    ],
    ids=["commits", "hunks"],
)
Load = Callable[[Any, Snapshot], object]


@KINDS
def test_a_later_commit_costs_itself_only(
    root: Path, cache: Path, said: list[Event], history: Any, load: Load
) -> None:
    load(history(cache, said.append), take_snapshot(root))
    change(root, 4)
    later = take_snapshot(root)
    known = load(history(cache, said.append), later)
    assert said == [StageProgress(history.stage, 4, 4), StageProgress(history.stage, 1, 1)]
    assert known == load(history(None, ignore), later)


@KINDS
@pytest.mark.parametrize("record", [b"", b"garbage", b"x\x9cK\xcaMM"])
def test_a_damaged_cache_is_read_again(
    root: Path, cache: Path, record: bytes, history: Any, load: Load
) -> None:
    snapshot = take_snapshot(root)
    first = load(history(cache, ignore), snapshot)
    with sqlite3.connect(cache) as connection:
        connection.execute("UPDATE record SET data = ?", (record,))
    connection.close()
    assert load(history(cache, ignore), snapshot) == first
    cache.write_bytes(b"no database" * 1_000)
    assert load(history(cache, ignore), snapshot) == first


@KINDS
def test_cancelled(root: Path, cache: Path, history: Any, load: Load) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        load(history(cache, ignore, cancel=cancel), take_snapshot(root))


def test_a_shallow_clone_is_not_remembered_as_the_whole(
    root: Path, cache: Path, said: list[Event], tmp_path: Path
) -> None:
    run_git(tmp_path, "clone", "-q", "--depth", "2", f"file://{root}", "shallow")
    clone = tmp_path / "shallow"
    snapshot = take_snapshot(clone)
    assert CommitHistory(cache, said.append).table(snapshot).subjects == ("change 3",)
    run_git(clone, "fetch", "-q", "--unshallow")
    assert len(CommitHistory(cache, said.append).table(snapshot).commits) == 4


def test_no_repository_and_no_such_commit_say_nothing(
    root: Path, cache: Path, said: list[Event]
) -> None:
    history = CommitHistory(cache, said.append)
    assert history.table(MemorySnapshot({"a.py": "a = 1\n"})).commits == ()
    assert history.table(replace(take_snapshot(root), commit="1" * 40)).commits == ()
    assert said == []


def test_a_failure_of_git_is_one_notice(root: Path, cache: Path, said: list[Event]) -> None:
    snapshot = take_snapshot(root)
    tree = run_git(root, "rev-parse", "HEAD~1^{tree}").strip()
    (root / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    assert CommitHistory(cache, said.append).table(snapshot).commits == ()
    (notice,) = said
    assert isinstance(notice, Notice)
    assert "going on without the commit history" in notice.message
