"""`agent.batch.driver`: which instance next, what an attempt's end means, when to stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.batch import (
    AttemptEnded,
    BatchPlan,
    Driver,
    Journal,
    Progress,
    SolveJob,
    Summary,
    read_entries,
    summary_of,
)
from agent.datasets import PredictionsWriter, SolverTask
from agent.errors import Status
from tests.support.batch import ScriptedEngine, ended, make_task
from tests.support.full_disk import full_at

CRASH = ended("crash", Status.CRASHED, "killed")
GONE = ended("environment", Status.PROVIDER, "unreachable")


@dataclass
class Bench:
    """A run folder and its data set; `run` is one driver from beginning to end."""

    folder: Path
    rows: list[SolverTask]
    order: tuple[str, ...] = ()  # of the whole data set

    def __post_init__(self) -> None:
        for name in ("repos/owner__shop", "repos/owner__other", "run/instances"):
            (self.folder / name).mkdir(parents=True)

    def run(
        self,
        engine: ScriptedEngine,
        *,
        workers: int = 1,
        max_tries: int = 2,
        total_cost: float | None = None,
        before: Callable[[Driver], object] = lambda _: None,
    ) -> Summary:
        run = self.folder / "run"
        plan = BatchPlan(
            self.folder / "data.jsonl",
            self.folder / "repos",
            self.folder / "preds.json",
            {},
            run,
            workers=workers,
            total_cost=total_cost,
            max_tries=max_tries,
        )
        with closing(Journal(run / "journal.jsonl")) as journal:
            order = self.order or [row.instance_id for row in self.rows]
            predictions = PredictionsWriter(self.folder / "preds.json", "m", order)
            driver = Driver(plan, self.rows, journal, predictions, Progress(quiet=True), engine)
            before(driver)
            asyncio.run(driver.run())
            return summary_of(driver, replies=0, seconds=1.0)

    @property
    def predictions(self) -> dict[str, str]:
        entries = json.loads((self.folder / "preds.json").read_text())
        return {name: entry["model_patch"] for name, entry in entries.items()}

    @property
    def events(self) -> list[str]:
        return [entry.event for entry in read_entries(self.folder / "run/journal.jsonl")]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, [make_task(number) for number in range(1, 5)])


def names(*numbers: int) -> list[str]:
    return [f"owner__shop-{number}" for number in numbers]


def unsolved(summary: Summary) -> list[tuple[str, str, str]]:
    return [(item.instance, item.kind, item.reason) for item in summary.unsolved]


def test_all_are_solved_in_order_with_as_many_at_once_as_there_are_workers(bench: Bench) -> None:
    engine = ScriptedEngine(lambda _: ended())
    summary = bench.run(engine, workers=2)
    assert engine.submitted == names(1, 2, 3, 4)
    assert engine.most == 2
    assert bench.predictions == {name: f"diff of {name}" for name in names(1, 2, 3, 4)}
    assert (summary.finished, summary.accepted, summary.verified) == (4, 4, 4)
    assert (summary.exit_code, summary.message, summary.pending) == (0, "", 0)


def test_a_second_run_goes_on_and_a_third_has_nothing_to_do(bench: Bench) -> None:
    bench.rows, everything = bench.rows[:2], bench.rows
    bench.run(ScriptedEngine(lambda _: ended()))
    bench.rows = everything
    engine = ScriptedEngine(lambda _: ended())
    summary = bench.run(engine)
    assert engine.submitted == names(3, 4)
    assert (summary.finished, summary.fresh) == (4, 2)
    assert list(bench.predictions) == names(1, 2, 3, 4)
    idle = ScriptedEngine([])
    assert bench.run(idle).exit_code == 0
    assert idle.submitted == []
    (bench.folder / "run/instances/owner__shop-2/result.json").unlink()
    engine = ScriptedEngine(lambda _: ended())
    bench.run(engine)
    assert engine.submitted == names(2)


def test_a_selection_takes_no_prediction_away(bench: Bench) -> None:
    everything = bench.rows
    bench.run(ScriptedEngine([ended(), ended(), CRASH, GONE, CRASH, GONE]))
    before = bench.predictions
    assert list(before) == names(1, 2, 3)  # the fourth has no result
    bench.rows, bench.order = everything[1:2], tuple(names(1, 2, 3, 4))
    summary = bench.run(ScriptedEngine([]))
    assert (summary.instances, summary.finished, summary.kept) == (1, 1, 2)
    assert bench.predictions == before
    assert list(bench.predictions) == names(1, 2, 3)


def test_an_instance_that_crashes_is_set_aside_with_its_best_patch(bench: Bench) -> None:
    def script(job: SolveJob) -> AttemptEnded:
        return CRASH if job.task.instance_id == "owner__shop-1" else ended()

    def keep(job: SolveJob) -> None:
        (Path(job.folder) / "patch.diff").write_text("so far")

    engine = ScriptedEngine(script, on_end=keep)
    summary = bench.run(engine)
    assert engine.submitted == names(1, 2, 3, 4, 1)
    assert unsolved(summary) == [("owner__shop-1", "set-aside", "killed")]
    assert (summary.exit_code, summary.finished) == (1, 3)
    assert "owner__shop-1: killed" in summary.message
    assert bench.predictions["owner__shop-1"] == "so far"
    again = ScriptedEngine([])
    assert bench.run(again).exit_code == 1
    assert again.submitted == []
    more = ScriptedEngine(lambda _: ended())
    assert bench.run(more, max_tries=3).exit_code == 0
    assert more.attempts == [3]


def test_what_the_provider_has_failed_is_left_for_the_next_run(bench: Bench) -> None:
    bench.rows = bench.rows[:2]
    summary = bench.run(ScriptedEngine([GONE, ended(), GONE]))
    assert unsolved(summary) == [("owner__shop-1", "left", "unreachable")]
    assert (summary.exit_code, list(bench.predictions)) == (9, names(2))
    engine = ScriptedEngine(lambda _: ended())
    assert bench.run(engine).exit_code == 0
    assert engine.submitted == names(1)


def test_a_run_in_which_nothing_works_stops(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [make_task(number) for number in range(50)])
    engine = ScriptedEngine(lambda _: GONE)
    summary = bench.run(engine)
    assert len(engine.submitted) == 5
    assert (summary.exit_code, summary.pending) == (9, 50)
    assert "5 attempts in a row have failed: unreachable" in summary.message


def test_workers_share_what_is_left_and_one_that_needs_more_gets_all(bench: Bench) -> None:
    budgets: list[float | None] = []

    def script(job: SolveJob) -> AttemptEnded:
        budgets.append(job.budget_usd)
        small = job.budget_usd is not None and job.budget_usd < 1.0
        return ended("budget", Status.BUDGET, "too small") if small else ended()

    bench.rows = bench.rows[:2]
    summary = bench.run(ScriptedEngine(script), workers=2, total_cost=1.0)
    assert budgets == [0.5, 0.5, 1.0, 1.0]
    assert (summary.exit_code, summary.finished) == (0, 2)


def test_an_environment_that_cannot_be_built_ends_the_run(bench: Bench) -> None:
    wrong = ended("environment", Status.USAGE, "envs.toml: no package pluginbase==1.0.1")
    summary = bench.run(ScriptedEngine([ended(), wrong]))
    assert (summary.exit_code, summary.finished, summary.pending) == (2, 1, 3)
    assert summary.message == "envs.toml: no package pluginbase==1.0.1"
    assert bench.run(ScriptedEngine(lambda _: ended())).finished == 4


def test_being_stopped_costs_no_try(bench: Bench) -> None:
    bench.rows = bench.rows[:1]
    for _ in range(3):
        bench.run(ScriptedEngine([ended("stopped", Status.INTERRUPTED), CRASH, ended()]))
    assert bench.events.count("set-aside") == 0


def test_predictions_that_cannot_be_written_do_not_stop_the_run(bench: Bench) -> None:
    bench.run(ScriptedEngine([ended()] * 4))
    (bench.folder / "preds.json").write_text("old")
    with ExitStack() as stack:
        full = lambda _: stack.enter_context(full_at(100))  # noqa: E731
        summary = bench.run(ScriptedEngine([]), before=full)
    assert (summary.exit_code, summary.finished) == (10, 4)
    assert "could not be written" in summary.message
    assert (bench.folder / "preds.json").read_text() == "old"


def test_a_journal_that_cannot_be_written_stops_at_once(bench: Bench) -> None:
    engine = ScriptedEngine(lambda _: CRASH)
    with ExitStack() as stack, pytest.raises(OSError):
        bench.run(engine, before=lambda _: stack.enter_context(full_at(300)))
    assert len(engine.submitted) == 2
    assert bench.events == ["started", "failed", "started"]
