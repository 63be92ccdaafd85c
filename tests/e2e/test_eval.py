"""`agent eval retrieval` as a user runs it: rows, tables, interruption."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.agent_process import AGENT, agent_environment
from tests.support.evaluation import bare_repository, dataset_row, write_dataset
from tests.support.interrupts import INTERRUPTIBLE

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def command(folder: Path, *arguments: str) -> list[str]:
    return [
        *AGENT, "eval", "retrieval", "--dataset", "d.jsonl",
        "--repos", "repos", "--output", "r.jsonl", "--embed", "off", *arguments,
    ]  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    return agent_environment(folder, TMPDIR=str(folder / "tmp"))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(folder, *arguments),
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    commit = bare_repository(tmp_path / "repos")
    rows = [dataset_row(commit, number) for number in range(1, 7)]
    write_dataset(tmp_path / "d.jsonl", [*rows, dataset_row(commit, 7, repo="owner/gone")])
    return tmp_path


def test_rows_tables_and_json(folder: Path) -> None:
    arguments = ("--workers", "2")
    done = run(folder, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    table = done.stdout.decode()
    assert table.startswith("Split all: 6 instances scored, 0 change no existing")
    assert "- 1 × no repository of owner/gone (first: owner__shop-7)" in table
    rows = [json.loads(line) for line in (folder / "r.jsonl").read_text().splitlines()]
    assert [row["instance_id"] for row in rows] == [f"owner__shop-{n}" for n in range(1, 7)]
    assert all(row["functions"][0] == "shop/basket.py:Basket.total_price" for row in rows)

    again = run(folder, *arguments, "--json", "--quiet")
    assert again.returncode == 0, again.stderr.decode()
    assert again.stderr == b""
    figures = json.loads(again.stdout)
    assert figures["scored"] == 6
    assert figures["report"]["metrics"]["context recall"]["mean"] == 1.0

    unknown = run(folder, "--preset", "nothing")
    assert unknown.returncode == 2
    assert b"unknown retrieval preset 'nothing'" in unknown.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_whole_rows(folder: Path, sent: signal.Signals) -> None:
    commit = json.loads((folder / "d.jsonl").read_text().splitlines()[0])["base_commit"]
    write_dataset(folder / "d.jsonl", [dataset_row(commit, n) for n in range(60)])
    output = folder / "r.jsonl"
    with subprocess.Popen(
        [*INTERRUPTIBLE, *command(folder, "--workers", "1")],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        deadline = time.monotonic() + 60
        while not (output.exists() and output.read_bytes().count(b"\n") >= 2):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(sent)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr.decode()
    assert b"Traceback" not in stderr
    kept = output.read_bytes()
    assert kept.endswith(b"}\n")
    assert 2 <= kept.count(b"\n") < 60
    assert list((folder / "tmp").iterdir()) == []


def test_when_every_instance_is_skipped(folder: Path) -> None:
    commit = "1" * 40
    write_dataset(folder / "d.jsonl", [dataset_row(commit)])
    done = run(folder, "--workers", "1")
    assert done.returncode == 2
    assert b"no commit" in done.stdout
    assert done.stderr.splitlines()[-1].startswith(b"agent: every instance was skipped")


def test_a_bad_row_is_one_line(folder: Path) -> None:
    (folder / "d.jsonl").write_text("{}\n")
    done = run(folder)
    assert done.returncode == 2
    assert done.stderr == b"agent: d.jsonl:1: instance_id: Field required; correct the row\n"
    assert not (folder / "r.jsonl").exists()
