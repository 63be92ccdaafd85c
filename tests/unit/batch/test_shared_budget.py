"""The sum of all workers' calls stays within the total, worst cases included."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.batch.journal import Journal, read_entries
from agent.batch.messages import (
    Answer,
    Ask,
    Dropped,
    EarlierReplies,
    Pace,
    Paid,
    SolveJob,
    StageDone,
)
from agent.batch.shared_budget import Bounds, Pacer, SharedBudget
from tests.support.batch import make_job

SHA = "a" * 64


def ask(worst: float | None, sha: str = SHA) -> Ask:
    return Ask(sha256=sha, worst_usd=worst)


def paid(cost: float | None, sha: str = SHA) -> Paid:
    return Paid(sha256=sha, cost_usd=cost, input_tokens=1, output_tokens=1)


class Bench:
    """A budget over a journal in `folder`."""

    def __init__(self, folder: Path, **bounds: Any) -> None:
        self.journal = Journal(folder / "journal.jsonl")
        self.stages: list[tuple[str, str]] = []
        self.budget = SharedBudget(
            self.journal,
            Bounds(**bounds),
            lambda job, stage: self.stages.append((job.task.instance_id, stage)),
        )

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        with closing(self.journal):
            return asyncio.run(work)


def granted(answer: Answer | None) -> bool:
    assert answer is not None
    return answer.granted


def test_a_call_waits_for_what_others_may_leave_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path, total_cost=1.0)
    first, second = make_job(1), make_job(2)

    async def go() -> tuple[bool, bool]:
        handle = bench.budget.handle
        assert granted(await handle(first, ask(0.8)))
        waiting = asyncio.create_task(handle(second, ask(0.5)))
        await asyncio.sleep(0.01)
        waited = not waiting.done()
        await handle(first, paid(0.1))
        return waited, granted(await waiting)

    assert bench.run(go()) == (True, True)
    assert bench.budget.spent_usd == pytest.approx(0.6)


def test_a_call_that_can_never_fit_is_refused_with_the_figures(tmp_path: Path) -> None:
    bench = Bench(tmp_path, total_cost=1.0)

    async def go() -> Answer | None:
        handle = bench.budget.handle
        await handle(make_job(1), ask(0.3))
        await handle(make_job(1), paid(0.3))
        return await handle(make_job(2), ask(0.8))

    answer = bench.run(go())
    assert not answer.granted
    assert "may cost $0.8000, but $0.7000 of the run's $1.0000 are left" in answer.reason
    assert "--max-total-cost" in answer.reason


def test_a_worker_that_dies_is_not_waited_for_and_its_worst_case_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, total_cost=1.0)
    dying, waiting = make_job(1), make_job(2)

    async def go() -> bool:
        await bench.budget.handle(dying, ask(0.8))
        answer = asyncio.create_task(bench.budget.handle(waiting, ask(0.5)))
        await asyncio.sleep(0.01)
        await bench.budget.worker_exited(dying)
        return granted(await answer)

    assert not bench.run(go())
    assert bench.budget.spent_usd == pytest.approx(0.8)


def test_an_unknown_price_and_a_total_exclude_each_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, total_cost=1.0)
    answer = bench.run(bench.budget.handle(make_job(), ask(None)))
    assert not answer.granted
    assert "PATCHSHOT_PRICES" in answer.reason


def test_without_a_total_everything_goes_and_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def go() -> None:
        assert granted(await bench.budget.handle(make_job(), ask(None)))
        await bench.budget.handle(make_job(), paid(None))

    bench.run(go())
    assert bench.budget.spent_in_words() == "cost unknown (1 reply without a price)"


def test_a_reply_kept_by_a_worker_that_could_not_tell_is_settled_at_its_cost(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, total_cost=1.0)
    bench.run(bench.budget.handle(make_job(), ask(0.8)))  # and then the driver is killed

    again = Bench(tmp_path, total_cost=1.0)
    assert again.budget.spent_usd == pytest.approx(0.8)

    async def go() -> None:
        recording = EarlierReplies(replies=((SHA, 0.1, 7, 3),))
        await again.budget.handle(make_job(), recording)
        await again.budget.handle(make_job(), recording)  # a third attempt finds nothing new

    again.run(go())
    assert again.budget.spent_usd == pytest.approx(0.1)
    (settled,) = [
        entry
        for line in (tmp_path / "journal.jsonl").read_text().splitlines()
        if (entry := json.loads(line))["event"] == "settled"
    ]
    assert (settled["input_tokens"], settled["output_tokens"]) == (7, 3)


def test_a_lost_call_stays_lost_when_the_same_question_is_paid_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def go() -> None:
        handle = bench.budget.handle
        await handle(make_job(), ask(0.8))
        await bench.budget.worker_exited(make_job())
        await handle(make_job(), EarlierReplies(replies=()))
        await handle(make_job(), ask(0.8))
        await handle(make_job(), paid(0.1))
        await handle(make_job(), EarlierReplies(replies=((SHA, 0.1, 7, 3),)))

    bench.run(go())
    assert bench.budget.spent_usd == pytest.approx(0.9)


@pytest.mark.parametrize(("charged", "spent"), [(True, 0.8), (False, 0.0)])
def test_a_call_without_a_reply(tmp_path: Path, charged: bool, spent: float) -> None:
    bench = Bench(tmp_path)

    async def go() -> None:
        await bench.budget.handle(make_job(), ask(0.8))
        await bench.budget.handle(make_job(), Dropped(sha256=SHA, charged=charged))

    bench.run(go())
    assert bench.budget.spent_usd == pytest.approx(spent)
    assert bench.journal.state.open == []


@pytest.mark.parametrize("seed", range(5))
def test_however_workers_meet_the_total_holds(tmp_path: Path, seed: int) -> None:
    total, chance = 2.0, random.Random(seed)
    bench = Bench(tmp_path, total_cost=total)
    plans = [[chance.uniform(0.01, 0.5) for _ in range(6)] for _ in range(8)]

    async def work(job: SolveJob, worsts: list[float]) -> None:
        for number, worst in enumerate(worsts):
            sha = f"{number:064}"
            if not granted(await bench.budget.handle(job, ask(worst, sha))):
                return
            assert bench.budget.spent_usd <= total + 1e-9
            await asyncio.sleep(0)
            await bench.budget.handle(job, paid(worst * chance.random(), sha))

    async def go() -> None:
        jobs = [make_job(number) for number in range(8)]
        await asyncio.gather(*map(work, jobs, plans))

    bench.run(asyncio.wait_for(go(), 10))
    assert 0 < bench.budget.spent_usd <= total
    assert bench.journal.state.open == []


def test_leave_is_on_the_disk_before_it_is_given(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def go() -> list[str]:
        await bench.budget.handle(make_job(), ask(0.1))
        return [entry.event for entry in read_entries(tmp_path / "journal.jsonl")]

    assert bench.run(go()) == ["granted"]


def test_stages_are_passed_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(bench.budget.handle(make_job(), StageDone(stage="pack", seconds=1.0, summary="")))
    assert bench.stages == [("owner__shop-1", "pack")]


def test_requests_are_spread_evenly_over_all_workers(tmp_path: Path) -> None:
    bench = Bench(tmp_path, per_minute=1200)  # one in 50 ms

    async def go() -> float:
        clock = asyncio.get_running_loop().time
        begin = clock()
        reports = [ask(0.1, f"{n:064}") if n % 2 else Pace() for n in range(5)]
        await asyncio.gather(*(bench.budget.handle(make_job(n), r) for n, r in enumerate(reports)))
        return clock() - begin

    assert 0.2 <= bench.run(go()) < 2.0


def test_without_a_rate_there_is_no_wait() -> None:
    async def go() -> None:
        pacer = Pacer(None)
        for _ in range(1000):
            await pacer.turn()

    asyncio.run(asyncio.wait_for(go(), 5))
