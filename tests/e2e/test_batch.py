"""`agent batch` as a user runs it: killed, interrupted and resumed, with the calls counted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

import pytest

from tests.support.batch_command import GOLD, RIGHT, WRONG, Bench, Held, lives
from tests.support.behaviours import Step, unauthorized

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

MakeBench = Callable[[Sequence[Step]], Bench]


def names(*numbers: int) -> list[str]:
    return [f"owner__shop-{number}" for number in numbers]


def test_bad_rows_are_told_the_others_solved_and_the_answer_stays_unseen(
    make_bench: MakeBench,
) -> None:
    bench = make_bench([RIGHT])
    bench.rows(
        bench.row(1),
        "{broken",
        bench.row(1),
        bench.row(2, base_commit="f" * 40),
        bench.row(3, repo="owner/gone"),
        bench.row(4),
    )
    code, summary = bench.batch("--workers", "2")
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
    kept = (p for p in (bench.home / "preds.run").rglob("*") if p.is_file())
    assert not [path for path in kept if GOLD in path.read_text()]

    again = bench.batch("--workers", "2")[1]
    assert again.get("replies") == 0, bench.stderr
    assert bench.calls == 2
    assert bench.batch("--context-tokens", "3000")[0] == 2
    assert 'context_tokens "auto", now 3000' in bench.stderr


def test_kill_9_of_a_worker_costs_its_call_and_nothing_that_was_paid(
    make_bench: MakeBench,
) -> None:
    bench = make_bench([WRONG, Held(RIGHT), RIGHT])
    started = bench.begin("--id", "owner__shop-1")
    started.wait_until(lambda: bench.calls == 2)
    os.kill(bench.worker(), signal.SIGKILL)
    code, summary = bench.finish(started)
    assert code == 0, bench.stderr
    # The first reply once, the second twice: it was under way.
    assert (bench.calls, summary["replies"]) == (3, 2)
    assert "killed by SIGKILL" in bench.stderr
    assert list(bench.predictions()) == names(1)


def test_kill_9_of_the_driver_pays_nothing_twice(make_bench: MakeBench) -> None:
    held = Held(RIGHT)
    bench = make_bench([WRONG, held, RIGHT])
    started = bench.begin("--id", "owner__shop-1")
    started.wait_until(lambda: bench.calls == 2)
    worker = bench.worker()
    started.stop()
    started = bench.begin("--id", "owner__shop-1")  # while the worker finishes its call
    time.sleep(1.0)
    assert lives(worker)
    held.go.set()
    code, summary = bench.finish(started)
    assert code == 0, bench.stderr
    assert bench.calls == 2
    assert not lives(worker)
    assert summary["accepted"] == 1
    replies = bench.home / "preds.run/instances/owner__shop-1/exchanges.jsonl"
    assert len(replies.read_text().splitlines()) == 2


def test_ctrl_c_finishes_what_runs_and_the_next_run_goes_on(make_bench: MakeBench) -> None:
    held = Held(RIGHT)
    bench = make_bench([held, RIGHT])
    started = bench.begin()
    started.wait_until(lambda: bench.calls == 1)
    assert bench.batch()[0] == 2
    assert "another run uses this folder" in bench.stderr
    started.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    held.go.set()
    code, summary = bench.finish(started)
    assert (code, summary["finished"], summary["pending"]) == (130, 1, 2)
    assert list(bench.predictions()) == names(1)
    code, summary = bench.batch("--workers", "2")
    assert (code, summary["finished"], summary["fresh"], bench.calls) == (0, 3, 2, 3)
    assert list(bench.predictions()) == names(1, 2, 3)


def test_the_total_holds_over_all_instances_and_runs(make_bench: MakeBench) -> None:
    bench = make_bench([RIGHT])
    # At most 1,000 tokens of output at $1 a thousand: $1 in the worst case, a few cents in fact.
    bench.variables["PATCHSHOT_PRICES"] = "0,1000"
    bench.variables["PATCHSHOT_MAX_OUTPUT_TOKENS"] = "1000"
    limits = ("--workers", "2", "--max-total-cost")
    code, summary = bench.batch(*limits, "1.04")
    assert (code, summary["finished"], bench.calls) == (8, 2, 2), bench.stderr
    assert 0 < summary["cost_usd"] < 1.04
    code, summary = bench.batch(*limits, "1.5")
    assert (code, summary["finished"], bench.calls) == (0, 3, 3)


def test_ctrl_c_twice_stops_at_once_and_leaves_no_process(make_bench: MakeBench) -> None:
    bench = make_bench([Held(RIGHT), RIGHT])
    started = bench.begin()
    started.wait_until(lambda: bench.calls == 1)
    worker = bench.worker()
    started.process.send_signal(signal.SIGINT)
    started.wait_for("once more to stop")
    begin = time.monotonic()
    started.process.send_signal(signal.SIGINT)
    code, summary = bench.finish(started)
    assert time.monotonic() - begin < 25  # 15 s at most for the worker
    assert (code, summary["finished"], summary["pending"]) == (130, 0, 3)
    assert not lives(worker)
    assert bench.predictions() == {}


def test_a_refusing_provider_leaves_everything_for_the_next_run(make_bench: MakeBench) -> None:
    bench = make_bench([unauthorized, RIGHT])
    code, summary = bench.batch("--id", "owner__shop-2", "--max-tries", "1", "--quiet")
    assert code == 9
    assert [item["kind"] for item in summary["unsolved"]] == ["left"]
    assert len(bench.stderr.splitlines()) == 1  # why, and no progress
    assert bench.batch("--id", "owner__shop-2")[0] == 0
