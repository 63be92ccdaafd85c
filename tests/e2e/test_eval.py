"""`agent eval retrieval` as a user runs it: rows, tables, interruption."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.evaluation import bare_repository, dataset_row, write_dataset
from tests.support.user import User

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

COMMAND = (
    *("eval", "retrieval", "--dataset", "d.jsonl", "--repos", "repos", "--output", "r.jsonl"),
    *("--embed", "off"),
)


@pytest.fixture
def commit(tmp_path: Path) -> str:
    return bare_repository(tmp_path / "repos")


@pytest.fixture
def user(tmp_path: Path) -> User:
    (tmp_path / "tmp").mkdir()
    return User(tmp_path, TMPDIR=str(tmp_path / "tmp"))


def test_rows_tables_and_json(user: User, commit: str) -> None:
    rows = [dataset_row(commit, number) for number in range(1, 7)]
    write_dataset(user.home / "d.jsonl", [*rows, dataset_row(commit, 7, repo="owner/gone")])
    table = user.ok(*COMMAND, "--workers", "2")
    assert table.startswith("Split all: 6 instances scored, 0 change no existing")
    assert "- 1 × no repository of owner/gone (first: owner__shop-7)" in table
    rows = [json.loads(line) for line in (user.home / "r.jsonl").read_text().splitlines()]
    assert [row["instance_id"] for row in rows] == [f"owner__shop-{n}" for n in range(1, 7)]
    assert all(row["functions"][0] == "shop/basket.py:Basket.total_price" for row in rows)

    again = user.run(*COMMAND, "--workers", "2", "--json", "--quiet")
    assert (again.returncode, again.stderr) == (0, "")
    figures = json.loads(again.stdout)
    assert figures["scored"] == 6
    assert figures["report"]["metrics"]["context recall"]["mean"] == 1.0


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_whole_rows(user: User, commit: str, sent: int) -> None:
    write_dataset(user.home / "d.jsonl", [dataset_row(commit, n) for n in range(60)])
    output = user.home / "r.jsonl"
    started = user.start(*COMMAND, "--workers", "1")
    started.wait_until(lambda: output.exists() and output.read_bytes().count(b"\n") >= 2)
    assert started.stop(sent)[0] == 130, started.stderr
    assert "Traceback" not in started.stderr
    kept = output.read_bytes()
    assert kept.endswith(b"}\n")
    assert 2 <= kept.count(b"\n") < 60
    assert list((user.home / "tmp").iterdir()) == []


def test_what_cannot_be_scored_is_one_line(user: User, commit: str) -> None:
    write_dataset(user.home / "d.jsonl", [dataset_row(commit[::-1])])
    done = user.run(*COMMAND, "--workers", "1")
    assert (done.returncode, "no commit" in done.stdout) == (2, True)
    assert done.stderr.splitlines()[-1].startswith("agent: every instance was skipped")
    preset = user.run(*COMMAND, "--preset", "nothing")
    assert preset.returncode == 2
    assert "unknown retrieval preset 'nothing'" in preset.stderr
    (user.home / "d.jsonl").write_text("{}\n")
    done = user.run(*COMMAND)
    assert done.returncode == 2
    assert done.stderr == "agent: d.jsonl:1: instance_id: Field required; correct the row\n"
