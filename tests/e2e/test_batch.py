"""`agent batch` as a user runs it: killed, interrupted and resumed, with the calls counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.behaviours import (
    Answer,
    Behaviour,
    ChatRequest,
    Good,
    Unauthorized,
)
from tests.support.evaluation import bare_repository, dataset_row
from tests.support.interrupts import INTERRUPTIBLE
from tests.support.scripted_provider import ScriptedProvider

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

GOLD = "g0ld-an5wer"


def edit(search: str) -> str:
    change = {"path": "shop/basket.py", "search": search, "replace": "self.items)"}
    return json.dumps({"edits": [change]})


RIGHT, WRONG = edit("self.items) - 1"), edit("no such text")


@dataclass(frozen=True)
class Held:
    """The same as `then`, once it is let go."""

    then: Behaviour
    go: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: ChatRequest) -> Answer:
        self.go.wait(100)
        return self.then.answer(request)


@dataclass
class Bench:
    """A data set of three instances, and one provider for all runs."""

    folder: Path
    commit: str
    provider: ScriptedProvider
    settings: dict[str, str] = field(default_factory=dict)

    def rows(self, *rows: dict[str, Any] | str) -> None:
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (self.folder / "d.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def row(self, number: int, **other: Any) -> dict[str, Any]:
        answer = {"patch": GOLD, "test_patch": GOLD, "FAIL_TO_PASS": [GOLD]}
        statement = f"total_price is {number} too low\n\nAn empty basket gives -1."
        return dataset_row(self.commit, number, problem_statement=statement, **{**answer, **other})

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "stderr").open("wb") as log:
            return subprocess.Popen(
                [
                    *INTERRUPTIBLE, sys.executable, "-m", "agent", "batch", "--dataset", "d.jsonl",
                    "--repos", "repos", "--output", "preds.json", "--embed", "off", "--no-tests",
                    "--accept-unverified", "--no-iterative", "--json", *arguments,
                ],
                cwd=self.folder,
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=log,
            )  # fmt: skip

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the summary, {} where there is none."""
        return self.finish(self.start(*arguments))

    def finish(self, process: subprocess.Popen[bytes]) -> tuple[int, dict[str, Any]]:
        stdout, _ = process.communicate(timeout=110)
        return process.returncode, json.loads(stdout) if stdout.strip() else {}

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONPATH": str(ROOT),
            "PATCHSHOT_CACHE_DIR": str(self.folder / "cache"),
            "PATCHSHOT_BASE_URL": self.provider.base_url,
            "PATCHSHOT_API_KEY": "test",
            "PATCHSHOT_MODEL": "scripted",
            **self.settings,
        }

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    @property
    def calls(self) -> int:
        return len(self.provider.chats)

    def wait_for_calls(self, number: int) -> None:
        self.wait(lambda: self.calls >= number)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 100
        while not condition():
            assert time.monotonic() < deadline, self.stderr
            time.sleep(0.02)

    def worker(self, number: int = 1) -> int:
        """The process id of the worker of an instance."""
        lock = self.folder / f"preds.run/instances/owner__shop-{number}/lock"
        return int(lock.read_text())

    def predictions(self) -> dict[str, str]:
        entries = json.loads((self.folder / "preds.json").read_text())
        return {name: entry["model_patch"] for name, entry in entries.items()}


MakeBench = Callable[[Sequence[Behaviour]], Bench]


@pytest.fixture
def make_bench(tmp_path: Path, request: pytest.FixtureRequest) -> MakeBench:
    def make(script: Sequence[Behaviour]) -> Bench:
        provider = ScriptedProvider(script)
        provider.__enter__()
        request.addfinalizer(lambda: provider.__exit__(None, None, None))
        (tmp_path / "tmp").mkdir()
        bench = Bench(tmp_path, bare_repository(tmp_path / "repos"), provider)
        bench.rows(*map(bench.row, range(1, 4)))
        return bench

    return make


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def names(*numbers: int) -> list[str]:
    return [f"owner__shop-{number}" for number in numbers]


def test_bad_rows_are_told_the_others_solved_and_the_answer_stays_unseen(
    make_bench: MakeBench,
) -> None:
    bench = make_bench([Good(RIGHT)])
    bench.rows(
        bench.row(1),
        "{broken",
        bench.row(1),
        bench.row(2, base_commit="f" * 40),
        bench.row(3, repo="owner/gone"),
        bench.row(4),
    )
    code, summary = bench.run("--workers", "2")
    assert code == 2, bench.stderr
    reasons = {item["instance"]: item["reason"] for item in summary["unsolved"]}
    assert reasons["d.jsonl:2"].startswith("not valid JSON")
    assert "owner__shop-1 again, first at d.jsonl:1" in reasons["d.jsonl:3"]
    assert "f" * 10 in reasons["owner__shop-2"]
    assert "no repository owner/gone" in reasons["owner__shop-3"]
    assert list(bench.predictions()) == names(1, 4)
    assert all("+        return sum(" in patch for patch in bench.predictions().values())
    assert (summary["finished"], summary["accepted"], bench.calls) == (2, 2, 2)
    assert GOLD not in "".join(chat.prompt for chat in bench.provider.chats)
    kept = (p for p in (bench.folder / "preds.run").rglob("*") if p.is_file())
    assert not [path for path in kept if GOLD in path.read_text()]

    assert bench.run("--workers", "2")[1]["replies"] == 0
    assert bench.calls == 2
    code, _ = bench.run("--context-tokens", "3000")
    assert code == 2
    assert "context_tokens 6000, now 3000" in bench.stderr


def test_kill_9_of_a_worker_costs_its_call_and_nothing_that_was_paid(
    make_bench: MakeBench,
) -> None:
    bench = make_bench([Good(WRONG), Held(Good(RIGHT)), Good(RIGHT)])
    process = bench.start("--id", "owner__shop-1")
    bench.wait_for_calls(2)
    os.kill(bench.worker(), signal.SIGKILL)
    code, summary = bench.finish(process)
    assert code == 0, bench.stderr
    # The first reply once, the second twice: it was under way.
    assert (bench.calls, summary["replies"]) == (3, 2)
    assert "killed by SIGKILL" in bench.stderr
    assert list(bench.predictions()) == names(1)


def test_kill_9_of_the_driver_pays_nothing_twice(make_bench: MakeBench) -> None:
    held = Held(Good(RIGHT))
    bench = make_bench([Good(WRONG), held, Good(RIGHT)])
    process = bench.start("--id", "owner__shop-1")
    bench.wait_for_calls(2)
    worker = bench.worker()
    process.kill()
    process.communicate()
    process = bench.start("--id", "owner__shop-1")  # while the worker finishes its call
    time.sleep(1.0)
    assert lives(worker)
    held.go.set()
    code, summary = bench.finish(process)
    assert code == 0, bench.stderr
    assert bench.calls == 2
    assert not lives(worker)
    assert summary["accepted"] == 1
    journal = (bench.folder / "preds.run/journal.jsonl").read_text().splitlines()
    how = [json.loads(line)["how"] for line in journal if '"settled"' in line]
    assert how == ["paid", "recovered"]


def test_ctrl_c_finishes_what_runs_and_the_next_run_goes_on(make_bench: MakeBench) -> None:
    held = Held(Good(RIGHT))
    bench = make_bench([held, Good(RIGHT)])
    process = bench.start()
    bench.wait_for_calls(1)
    code, _ = Bench(bench.folder, bench.commit, bench.provider).run()
    assert code == 2
    assert "another run uses this folder" in bench.stderr
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    held.go.set()
    code, summary = bench.finish(process)
    assert (code, summary["finished"], summary["pending"]) == (130, 1, 2)
    assert list(bench.predictions()) == names(1)
    code, summary = bench.run("--workers", "2")
    assert (code, summary["finished"], summary["fresh"], bench.calls) == (0, 3, 2, 3)
    assert list(bench.predictions()) == names(1, 2, 3)


def test_ctrl_c_twice_stops_at_once_and_leaves_no_process(make_bench: MakeBench) -> None:
    bench = make_bench([Held(Good(RIGHT)), Good(RIGHT)])
    process = bench.start()
    bench.wait_for_calls(1)
    worker = bench.worker()
    process.send_signal(signal.SIGINT)
    bench.wait(lambda: "once more to stop" in bench.stderr)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, summary = bench.finish(process)
    assert time.monotonic() - begin < 25  # 15 s at most for the worker
    assert (code, summary["finished"], summary["pending"]) == (130, 0, 3)
    assert not lives(worker)
    assert bench.predictions() == {}
    assert bench.run()[1]["finished"] == 3


def test_the_total_holds_over_all_instances_and_runs(make_bench: MakeBench) -> None:
    bench = make_bench([Good(RIGHT)])
    # At most 1,000 tokens of output at $1 a thousand: $1 in the worst case, a few cents in fact.
    bench.settings = {"PATCHSHOT_PRICE_INPUT": "0", "PATCHSHOT_PRICE_OUTPUT": "1000"}
    limits = ("--max-output-tokens", "1000", "--workers", "2", "--max-total-cost")
    code, summary = bench.run(*limits, "1.04")
    assert code == 8, bench.stderr
    assert (summary["finished"], bench.calls) == (2, 2)
    assert 0 < summary["cost_usd"] < 1.04
    assert "--max-total-cost" in summary["message"]
    code, summary = bench.run(*limits, "1.5")
    assert (code, summary["finished"], bench.calls) == (0, 3, 3)
    assert bench.run(*limits, "0")[0] == 0  # nothing is left to pay for


def test_a_refusing_provider_leaves_everything_for_the_next_run(make_bench: MakeBench) -> None:
    bench = make_bench([Unauthorized(), Good(RIGHT)])
    code, summary = bench.run("--id", "owner__shop-2", "--max-tries", "1", "--quiet")
    assert code == 9
    assert [item["kind"] for item in summary["unsolved"]] == ["left"]
    assert len(bench.stderr.splitlines()) == 1  # why, and no progress
    assert bench.run("--id", "owner__shop-2")[0] == 0
